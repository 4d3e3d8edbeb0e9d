"""The base of every API model: frozen, camelCase on the wire, unknown fields refused."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from rl_contract.wire import WireModel


def keyed_by(*keys: str) -> JsonDict:
    """Schema of a list whose entries are identified by these fields: server-side apply merges entry by entry."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def validated(rule: str, message: str) -> JsonDict:
    """Schema of a CEL rule that the API server enforces."""
    return all_validated((rule, message))


def all_validated(*rules: tuple[str, str]) -> JsonDict:
    """The same of several rules, each with its message."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]}


ObjectName = Annotated[str, Field(max_length=253)]
"""Of a Kubernetes object, or what is made of one."""
LabelValue = Annotated[str, Field(max_length=63)]
Url = Annotated[str, Field(max_length=1024)]


class ApiModel(WireModel):
    model_config = ConfigDict(extra="forbid")


class NameReference(ApiModel):
    """A reference by name."""

    name: ObjectName = Field(description="Name of the object.")


class ObservedModel(ApiModel):
    """What others wrote: unknown fields are ignored, so that a newer writer does not break an older reader."""

    model_config = ConfigDict(extra="ignore")


class ObjectMeta(ObservedModel):
    """The part of Kubernetes' ObjectMeta that this project reads."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
