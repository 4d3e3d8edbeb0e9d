"""RLEnvironment: an environment of a user's or an agent's own. Untrusted: it runs in a pod apart from every key."""

from typing import Final, Literal

from pydantic import ConfigDict, Field

from rl_operator.api.catalog import EnvironmentField
from rl_operator.api.model import ApiModel, NameReference, ObjectMeta, all_validated, keyed_by
from rl_operator.api.names import API_VERSION, ENVIRONMENT_KIND, HARNESS_PREFIX, OWN_PREFIX
from rl_operator.api.runtime import ENVIRONMENT_KEYS, SecretKey
from rl_operator.api.spec_parts.container_resources import ResourceRequirements
from rl_operator.api.spec_parts.openenv import OpenEnv
from rl_operator.api.status_fields import ConditionsStatus

METADATA: Final = (
    *("169.254.0.0/16", "fe80::/10"),  # link-local: most clouds
    *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),  # Alibaba, Azure, Oracle
    *("fd00:ec2::/32", "fd20:ce::254/128"),  # AWS, Google
)
"""Where clouds serve credentials of the node. Environments connect there by no URL, and by no range that is wider."""


def is_own(environment: str) -> bool:
    """Whether `spec.environment` names one of the user's own: an RLEnvironment, or in local mode a file."""
    return environment.startswith(OWN_PREFIX) or environment.endswith(".py")


def runs_apart(environment: str) -> bool:
    """Whether what it runs is the user's own, code or command: never in the run's pod, beside its keys."""
    return is_own(environment) or environment.startswith(HARNESS_PREFIX)


class ConfigMapSource(ApiModel):
    """Python files in a ConfigMap of the same namespace, one per key."""

    name: str = Field(min_length=1, max_length=253, description="Name of the ConfigMap.")
    entry: str | None = Field(
        default=None, max_length=253, description="The file that defines the environment; default: the only .py file."
    )


class EnvironmentSource(ApiModel):
    """Where the code is."""

    config_map: ConfigMapSource = Field(description="Python files in a ConfigMap.")


class EnvironmentImage(ApiModel):
    """An image that holds the environment beside tinker-atropos."""

    reference: str = Field(min_length=1, max_length=1024, description="The image.")
    entry: str = Field(
        min_length=1,
        max_length=1024,
        description="Name of an environment in it, such as verifiers/ID, or absolute path of its file.",
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(default=None, description="As in pods.")
    pull_secrets: tuple[NameReference, ...] = Field(
        default=(), max_length=32, description="As in pods.", json_schema_extra=keyed_by("name")
    )


class EnvironmentSpec(ApiModel):
    """What the author provides."""

    model_config = ConfigDict(
        json_schema_extra=all_validated(
            (
                "[has(self.source), has(self.image), has(self.openenv)].exists_one(given, given)",
                "give exactly one of source, image and openenv",
            ),
            (
                "!has(self.openenv) || !has(self.secretEnvironment) || self.secretEnvironment.size() == 0",
                "an OpenEnv server gets no keys: leave secretEnvironment out",
            ),
        )
    )

    source: EnvironmentSource | None = Field(default=None, description="The code; runs in the runtime's image.")
    image: EnvironmentImage | None = Field(default=None, description="An image instead of source code.")
    openenv: OpenEnv | None = Field(default=None, description="A server that speaks OpenEnv's protocol, instead.")
    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements, description="Of each environment pod; default: the runtime's."
    )
    secret_environment: tuple[SecretKey, ...] = Field(
        default=(),
        max_length=32,
        description="Secret keys it needs, each as the variable of its key's name; only those that the runtime lists.",
        json_schema_extra=ENVIRONMENT_KEYS,
    )


class EnvironmentStatus(ConditionsStatus):
    """What was read from the code, without running it."""

    source_hash: str | None = Field(default=None, description="Hash of the files that this speaks of.")
    image_id: str | None = Field(default=None, alias="imageID", description="Digest of the image that was read.")
    entry: str | None = Field(default=None, description="The file that defines the environment.")
    class_name: str | None = Field(default=None, description="The class that was found.")
    description: str | None = Field(default=None, description="First line of its docstring.")
    draws_items: bool | None = Field(
        default=None, description="true: it draws its items itself (get_next_item), in no order that a run could keep."
    )
    fields: tuple[EnvironmentField, ...] = Field(
        default=(), description="The config's fields.", json_schema_extra=keyed_by("name")
    )

    @property
    def fault(self) -> tuple[str, str] | None:
        """Why no run of it can start: a reason and a sentence. None: it is ready."""
        told = self.condition("Stalled") or self.condition("Ready")
        if told is None:
            return "Pending", "it is going to be read"
        return None if told.type == "Ready" and told.status == "True" else (told.reason, told.message)


class Environment(ApiModel):
    """An RLEnvironment."""

    api_version: Literal["rl-operator.dev/v1alpha1"] = API_VERSION
    kind: Literal["RLEnvironment"] = ENVIRONMENT_KIND
    metadata: ObjectMeta
    spec: EnvironmentSpec
    status: EnvironmentStatus = Field(default_factory=EnvironmentStatus)

    @property
    def key(self) -> tuple[str, str]:
        return self.metadata.namespace, self.metadata.name
