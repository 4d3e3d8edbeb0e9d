"""The catalog: which environments there are and which fields each has, as found by static reading."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from rl_operator.api.model import ObservedModel


class EnvironmentField(ObservedModel):
    """One field of an environment's config. Limits are there only where the source states them."""

    name: str = Field(description="Name of the field, as spec.config has it.")
    type: str = Field(description="The source's annotation, e.g. `int` or `str | None`.")
    default: Any = Field(
        default=None, description="The effective value when none is set; absent where only running the code would tell."
    )
    description: str = Field(default="", description="What the field means.")
    minimum: float | None = Field(default=None, description="Smallest number that is allowed.")
    exclusive_minimum: float | None = Field(default=None, description="Every number above this one is allowed.")
    maximum: float | None = Field(default=None, description="Largest number that is allowed.")
    exclusive_maximum: float | None = Field(default=None, description="Every number below this one is allowed.")
    min_length: int | None = Field(default=None, description="Fewest characters, or entries, that are allowed.")
    max_length: int | None = Field(default=None, description="Most characters, or entries, that are allowed.")
    pattern: str | None = Field(default=None, description="Regular expression that a text must match somewhere.")
    choices: tuple[Any, ...] | None = Field(default=None, description="Values of the enum in the type.")


class CatalogEnvironment(ObservedModel):
    name: str
    class_name: str = ""
    file_path: str = ""
    description: str = ""
    fields: tuple[EnvironmentField, ...] = ()

    @property
    def fields_by_name(self) -> dict[str, EnvironmentField]:
        return {field.name: field for field in self.fields}


class CatalogProblem(ObservedModel):
    """Why the files of an own environment cannot be served. `line` counts from 1; `file` is empty where none is to
    blame.

    Reasons: SyntaxError, NoEnvironment, SeveralEnvironments, WrongConfigClass, NotImportable, Unreadable.
    """

    reason: str
    file: str
    line: int | None = None
    message: str

    @property
    def sentence(self) -> str:
        """`my_env.py, line 3: …`."""
        place = f"{self.file}, line {self.line}" if self.line is not None else self.file
        return f"{place}: {self.message}" if place else self.message


class Catalog(ObservedModel):
    """`problem` and `modules` belong to one entry file: its fault, and the files that it imports, itself first."""

    environments: tuple[CatalogEnvironment, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: CatalogProblem | None = None
    modules: tuple[str, ...] = ()

    @property
    def by_name(self) -> Mapping[str, CatalogEnvironment]:
        return {environment.name: environment for environment in self.environments}
