"""The catalogue: which environments there are and which fields each has, as found by static reading."""

from collections.abc import Mapping
from typing import Any

from rl_operator.api.model import ObservedModel


class EnvironmentField(ObservedModel):
    """One field of an environment's config. `type` is the source's annotation, e.g. `int` or `str | None`."""

    name: str
    type: str
    default: Any = None
    description: str = ""


class CatalogueEnvironment(ObservedModel):
    name: str
    class_name: str = ""
    file_path: str = ""
    description: str = ""
    fields: tuple[EnvironmentField, ...] = ()

    @property
    def fields_by_name(self) -> dict[str, EnvironmentField]:
        return {field.name: field for field in self.fields}


class Catalogue(ObservedModel):
    environments: tuple[CatalogueEnvironment, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def by_name(self) -> Mapping[str, CatalogueEnvironment]:
        return {environment.name: environment for environment in self.environments}
