"""Training that has diverged: how it is found, and what to lower. Pure."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from tinker_atropos.chat.sampling import Floats
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import DivergedError


def check_loss(loss_sum: float, logprobs: Iterable[Floats]) -> None:
    """What forward_backward answered: the loss, and the logprobs of each sequence's trained tokens.

    Raises DivergedError if one of them is not a finite number.
    """
    if not math.isfinite(loss_sum):
        raise DivergedError(f"the loss is {loss_sum}")
    logprobs_N = np.concatenate(list(logprobs))
    if not np.isfinite(logprobs_N).all():
        raise DivergedError(f"the logprob of a trained token is {_first_bad(logprobs_N)}")


def check_gradient(metrics: Mapping[str, float] | None) -> None:
    """What optim_step answered: the figures about the gradient that a backend chooses to give.

    Raises DivergedError if one of them is not a finite number.
    """
    for name, value in (metrics or {}).items():
        if "grad" in name and not math.isfinite(value):
            raise DivergedError(f"the gradient is not finite ({name} is {value})")


def check_sample(logprobs_T: Floats) -> None:
    """Raises DivergedError if a token was drawn from something that is not a distribution."""
    if not np.isfinite(logprobs_T).all():
        raise DivergedError(f"the logprob of a sampled token is {_first_bad(logprobs_T)}")


def diverged(why: DivergedError, step: int, config: RunConfig) -> DivergedError:
    """The error that ends the run: when, why, and what to lower, the likeliest first."""
    env, tinker = config.env, config.tinker
    remedies = [f"lower trainer.learning_rate ({tinker.learning_rate:g})"]
    if tinker.max_staleness and env.max_batches_offpolicy > 1:
        remedies.append(f"env.max_batches_offpolicy ({env.max_batches_offpolicy})")
    if tinker.loss == "importance_sampling":
        remedies.append("or use trainer.loss: ppo, which clips")
    return DivergedError(f"training diverged after step {step}: {why}; {', '.join(remedies)}")


def _first_bad(values: Floats) -> float:
    return float(values[~np.isfinite(values)][0])
