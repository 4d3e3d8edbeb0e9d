"""`spec.openenv` of an RLEnvironment: a server that speaks OpenEnv's protocol, and is not ours.

OpenEnv 0.10 serves `GET /health`, `GET /schema` and a session for each connection to `/ws`, by habit on port 8000
(https://github.com/meta-pytorch/OpenEnv). A program of our image plays against it.
"""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from rl_contract.processes import OPS_PORTS
from rl_operator.api.model import ApiModel, NameReference, all_validated, keyed_by
from rl_operator.api.spec_parts.container_resources import ResourceRequirements

OPS_PORT: Final = OPS_PORTS["environment"]
"""Of the environment beside the server: the containers of a pod share their ports."""

ONE_OF_TWO: Final = "give exactly one of image and url; a command without an image is for local mode"
COMMAND_OF_IMAGE: Final = "command belongs to an image: leave it out beside a url"
NEEDS_CLUSTER: Final = (
    "local mode runs no images: name spec.openenv.command, a program of this machine, or spec.openenv.url instead"
)
PORT_TAKEN: Final = f"port {OPS_PORT} is taken by the environment beside the server: choose another"

URL_PATTERN: Final = r"^https?://([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$"
"""Scheme, host and port alone: a path is the protocol's, and what is before an @ is a key."""

MOST_SEEDS: Final = 10_000_000

Word = Annotated[str, Field(max_length=16_384)]


class OpenEnv(ApiModel):
    """An OpenEnv server: an image that runs beside each environment process, or one that runs elsewhere."""

    model_config = ConfigDict(
        json_schema_extra=all_validated(
            ("has(self.image) != has(self.url)", ONE_OF_TWO),
            ("!has(self.command) || !has(self.url)", COMMAND_OF_IMAGE),
            (f"self.port != {OPS_PORT}", PORT_TAKEN),
        )
    )

    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="The server's image. It runs in each environment pod, without keys and as another user than root.",
    )
    command: tuple[Word, ...] = Field(
        default=(),
        max_length=32,
        description="Program and arguments instead of the image's own; without an image, in local mode, a program of "
        "this machine with absolute paths. `$PORT` in a word is the port to listen on, as is the variable PORT.",
    )
    port: int = Field(
        default=8000, ge=1, le=65_535, description="Port of the image's server; local mode chooses a free one."
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(default=None, description="As in pods.")
    pull_secrets: tuple[NameReference, ...] = Field(
        default=(), max_length=32, description="As in pods.", json_schema_extra=keyed_by("name")
    )
    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements,
        description="Of the image's server; limits that are not set are 2 CPUs, 2Gi of memory and 1Gi of disk.",
    )
    read_only_root_filesystem: bool = Field(
        default=True, description="False: the image's server may write outside of /tmp, too."
    )
    url: str | None = Field(
        default=None,
        pattern=URL_PATTERN,
        max_length=1024,
        description="A server that runs already, as http(s)://host[:port].",
    )
    max_sessions: int = Field(
        default=16, ge=1, le=1_024, description="Most sessions, and so rollouts, of one environment process at once."
    )
    timeout_seconds: int = Field(
        default=60, ge=1, le=3_600, description="Longest wait for an answer of the server; then the rollout is lost."
    )
    training_seeds: int = Field(
        default=100_000, ge=1, le=MOST_SEEDS, description="Training items: each is a seed that sessions are reset with."
    )
    held_out_seeds: int = Field(
        default=100, ge=1, le=100_000, description="Held-out items: seeds that are never trained on."
    )

    @property
    def runs_beside(self) -> bool:
        """Whether the server is a container of the environment's pod."""
        return self.url is None
