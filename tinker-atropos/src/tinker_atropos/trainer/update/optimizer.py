"""How an optimizer step moves the weights: Adam's settings and its learning rate at each step. Pure.

Of step s (0 is the first) of n = total_steps, with a warm-up of w = `warmup_steps`, the learning rate is

    lr (s + 1) / w                              if s < w, else by `learning_rate_schedule`
    lr                                          constant
    lr (1 - (s - w) / (n - w))                  linear
    lr (1 + cos(pi (s - w) / (n - w))) / 2      cosine

Without a warm-up these are tinker-cookbook's (utils/lr_scheduling.py). Only the step
decides, so an attempt that continues, or a step that is replayed, has the same rate.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.backend.step_requests import AdamStep
from tinker_atropos.trainer.data.datums import Datum

SCHEDULES: Final[Mapping[str, Callable[[float], float]]] = {
    "constant": lambda _: 1.0,
    "linear": lambda share: 1 - share,
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
}
"""The factor of the learning rate by the share of the steps after the warm-up that are done."""


def learning_rate_at(step: int, peak: float, schedule: str, warmup_steps: int, total_steps: int) -> float:
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * SCHEDULES[schedule]((step - warmup_steps) / max(total_steps - warmup_steps, 1))


def adam_at(step: int, config: RunConfig) -> AdamStep:
    """Of the policy step with that number: all of its optimizer steps have the same."""
    tinker = config.tinker
    assert tinker.learning_rate != "auto", "with_learning_rate has put a number in its place"
    rate = learning_rate_at(
        step, tinker.learning_rate, tinker.learning_rate_schedule, tinker.warmup_steps, config.env.total_steps
    )
    return AdamStep(rate, tinker.weight_decay, tinker.grad_clip_norm)


def dealt_out(datums: Sequence[Datum], substeps: int) -> list[list[Datum]]:
    """The datums of each of so many optimizer steps: whole groups, in order, as evenly as they can be divided. Of
    groups that have an advantage there may be fewer.
    """
    groups = list(dict.fromkeys(datum.group for datum in datums))
    shares = [set(share.tolist()) for share in np.array_split(groups, min(substeps, len(groups)))]
    return [[datum for datum in datums if datum.group in share] for share in shares]


def gradient_metrics(answers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """`train/grad_norm`, before clipping: the mean over a policy step's optimizer steps, of a backend that reports it
    (`grad_norm`, or `grad_norm:REDUCTION` as Tinker names metrics).
    """
    norms = [norm for answer in answers for name, norm in answer.items() if name.split(":")[0] == "grad_norm"]
    return {"train/grad_norm": sum(norms) / len(norms)} if norms else {}
