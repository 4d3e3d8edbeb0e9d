"""Where an environment's sandboxes come from: pods, if its run has them, or this machine."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from tinker_atropos.errors import ConfigError
from tinker_atropos.sandboxes.local_pool import LocalSandboxes
from tinker_atropos.sandboxes.local_sandbox import LocalSandbox
from tinker_atropos.sandboxes.pod_pool import PodSandboxes
from tinker_atropos.sandboxes.sandbox import NotIsolatedError, SandboxLimits, SandboxPool
from tinker_atropos.settings import load_settings

Place = Literal["local", "kubernetes"]

IN_POD: Final = "KUBERNETES_SERVICE_HOST"
"""A variable of every container of a cluster. There the trainer's ports are near."""

NO_PODS: Final = (
    "env.terminal_backend is 'kubernetes', and this process has no sandboxes in pods (RL_SANDBOX_HOST is not set): set "
    "spec.sandbox of the run; or set terminal_backend to local, or leave it out"
)


@dataclass(frozen=True, slots=True)
class SandboxSource:
    """`make_pool` makes the pool once a sandbox is needed. `capacity` is how many rollouts can have one at once; None
    is any number. `trial` starts and ends one on this machine, where that may be impossible.
    """

    make_pool: Callable[[], SandboxPool]
    capacity: int | None = None
    trial: Callable[[], None] | None = None

    def check(self) -> None:
        """Raises ConfigError if there will be no sandboxes: each rollout would fail, and then the run."""
        try:
            if self.trial is not None:
                self.trial()
        except NotIsolatedError as error:
            raise ConfigError(str(error)) from None


def sandbox_source(
    place: Place | None, limits: SandboxLimits, environ: Mapping[str, str] = os.environ
) -> SandboxSource:
    """`limits` are for sandboxes on this machine; those of pods stand in the run. Raises ConfigError."""
    settings = load_settings("environment", environ)
    service = settings.sandboxes
    if place == "kubernetes" and service is None:
        raise ConfigError(NO_PODS)
    if place == "local" or service is None:
        limits = replace(limits, must_isolate=IN_POD in environ)
        trial = (lambda: LocalSandbox(limits).close()) if limits.must_isolate else None
        return SandboxSource(partial(LocalSandboxes, limits), trial=trial)
    make = partial(PodSandboxes, service.host, service.port, settings.run_uid, service.share)
    return SandboxSource(partial(make, run_name=settings.run_name), service.share)
