"""Whether an environment derives from our own base class.

Importing that class imports atroposlib, which must not happen before the process is prepared for it: `import wandb` is
to find the relay, and torch is hidden. Whoever asks has an instance, so by then it has happened.
"""

from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from tinker_atropos.environments.base import SampledEnvironment


def is_own(env: Any) -> "TypeGuard[SampledEnvironment[Any]]":
    from tinker_atropos.environments.base import SampledEnvironment

    return isinstance(env, SampledEnvironment)
