"""Sandbox pods, in which an agent's tools work: what a run asks for, and what its runtime allows."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field

from rl_operator.api.model import ApiModel, ObjectName
from rl_operator.api.spec_parts.container_resources import Quantity, ResourceRequirements, parse_quantity

DEFAULT_SIZE: Final = 4
DEFAULT_SECONDS: Final = 600
LARGEST_SIZE: Final = 1000
LONGEST_LEASE: Final = 7 * 86_400

REQUESTS: Final[Mapping[str, Quantity | int]] = {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
LIMITS: Final[Mapping[str, Quantity | int]] = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
"""Of a sandbox whose run asks for nothing else."""

MOST: Final[Mapping[str, Quantity | int]] = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "4Gi"}
"""Of any sandbox, where the runtime says nothing else."""

LEAST: Final[Mapping[str, Quantity | int]] = {"cpu": "50m", "memory": "96Mi", "ephemeral-storage": "64Mi"}
"""Lower limits leave no room for the tool server, and the interpreter that it brings along."""

ImageName = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S+$")]


class RunSandboxes(ApiModel):
    """Pods in which the tools of an environment's agent work; each is for one rollout, then replaced."""

    image: ImageName | None = Field(
        default=None, description="Any image with /bin/sh, of those that the runtime allows; default: the runtime's."
    )
    size: int = Field(
        default=DEFAULT_SIZE,
        ge=1,
        le=LARGEST_SIZE,
        description="Pods that are ready or in use: at most so many rollouts have a sandbox at once.",
    )
    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements,
        description=f"Of one pod. Limits it does not name: {', '.join(f'{n} {v}' for n, v in LIMITS.items())}.",
    )
    timeout_seconds: int | None = Field(
        default=None,
        ge=1,
        le=LONGEST_LEASE,
        description="A sandbox ends this long after a rollout first used it; default: the environment's "
        f"rollout_seconds, else {DEFAULT_SECONDS}.",
    )


class RuntimeSandboxes(ApiModel):
    """Bounds of the sandbox pods of a runtime's runs."""

    image: ImageName | None = Field(
        default=None, description="Image of the sandboxes of runs that name none; default: the runtime's image."
    )
    images: tuple[ImageName, ...] = Field(
        default=(),
        max_length=64,
        description="Other images that runs may name; * stands for any text, as in registry.example/agents/*.",
    )
    max_size: int = Field(default=16, ge=1, le=LARGEST_SIZE, description="Most sandbox pods of a run.")
    max_resources: dict[str, Quantity | int] = Field(
        default_factory=dict,
        max_length=32,
        description=f"Highest limits of one pod; default: {', '.join(f'{n} {v}' for n, v in MOST.items())}.",
    )
    max_timeout_seconds: int = Field(default=3600, ge=1, le=LONGEST_LEASE, description="Longest time of a sandbox.")
    runtime_class_name: ObjectName | None = Field(
        default=None, description="As in pods, for sandboxes, such as gvisor; default: the runtime's."
    )

    def allows(self, image: str) -> bool:
        patterns = (".*".join(map(re.escape, pattern.split("*"))) for pattern in self.images)
        return image == self.image or any(re.fullmatch(pattern, image) for pattern in patterns)

    def most(self) -> dict[str, Quantity | int]:
        """The highest limit of each resource; one that is not among them is not to be had."""
        return {**MOST, **self.max_resources}


def sandbox_resources(asked: ResourceRequirements, bounds: RuntimeSandboxes) -> ResourceRequirements:
    """What one pod gets: what the run asks for, and defaults within the bounds. Every limit is set."""
    most = bounds.most()
    defaults = {name: _least(limit, most[name]) for name, limit in LIMITS.items()}
    limits = {**{name: _greatest(limit, asked.requests.get(name)) for name, limit in defaults.items()}, **asked.limits}
    requests = {name: _least(request, limits[name]) for name, request in REQUESTS.items()}
    return ResourceRequirements(requests={**requests, **asked.requests}, limits={**asked.requests, **limits})


def sandbox_seconds(asked: RunSandboxes, bounds: RuntimeSandboxes, rollout_seconds: float | None) -> int:
    """How long one may be used: as long as a rollout may take, unless the run says something else."""
    usual = DEFAULT_SECONDS if rollout_seconds is None else math.ceil(rollout_seconds)
    return asked.timeout_seconds or min(usual, bounds.max_timeout_seconds)


def _least(one: Quantity | int, other: Quantity | int) -> Quantity | int:
    return one if (parse_quantity(one) or 0) <= (parse_quantity(other) or 0) else other


def _greatest(one: Quantity | int, other: Quantity | int | None) -> Quantity | int:
    return one if other is None or _least(one, other) == other else other
