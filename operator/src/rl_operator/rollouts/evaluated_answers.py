"""What the answers to each held-out item of an evaluation are worth, from the rollouts of its step. Pure, apart from
the source that it reads from.
"""

import hashlib
import json
import math
from collections import defaultdict
from statistics import fmean
from typing import Final

from rl_contract.rollout_records import LONGEST_ITEM, MAIN_SET, GroupRecord, read_record
from rl_contract.status_metrics import GREEDY_PREFIX, EvaluatedFigure
from rl_operator.operator_errors import RefusedError
from rl_operator.rollouts.file_lines import FileFaults, records_of
from rl_operator.rollouts.rollout_figures import prompt_of
from rl_operator.rollouts.rollout_source import RolloutSteps

ROUNDED: Final = 1e-3
"""Figures have four significant digits."""


def evaluated_answers(steps: RolloutSteps, figure: EvaluatedFigure) -> dict[str, tuple[float, ...]]:
    """By item, what the answers behind a held-out figure are worth. Raises RefusedError: why that is not known."""
    of_set, _, leaf = figure.name.rpartition("/")
    if leaf.startswith("pass_at_"):
        raise RefusedError(f"{figure.metric} is no mean of answers")
    if figure.step is None:
        raise RefusedError("its status does not say which step its held-out figure is of")
    if not steps.steps:
        raise RefusedError(f"there are no rollouts in {steps.source.where}")
    found = defaultdict[str, list[float]](list)
    for file in steps.step(figure.step).files.values():  # what a newer attempt evaluated takes the place of the older
        for _, group in records_of(steps.source.content(file.name), FileFaults(), read_record):
            if not isinstance(group, GroupRecord) or group.fate != "evaluated":
                continue
            is_asked = group.greedy == leaf.startswith(GREEDY_PREFIX)
            if is_asked and (of_set or MAIN_SET) in (group.sets or [MAIN_SET]):
                found[item_key(group)] += [math.nan if each.worth is None else each.worth for each in group.rollouts]
        if found:
            break
    _check(figure, [worth for each in found.values() for worth in each])
    return {item: tuple(each) for item, each in found.items()}


def _check(figure: EvaluatedFigure, worths: list[float]) -> None:
    """Refuses answers that do not add up to the figure: an environment's own evaluation may count otherwise."""
    if not worths:
        raise RefusedError(f"the rollouts of step {figure.step} have no answers of its evaluation")
    mean = fmean(worths)
    if math.isnan(mean):
        raise RefusedError("its rollouts do not say what each answer counts as, as those of our base classes do")
    if len(worths) == figure.samples and abs(mean - figure.value) > ROUNDED * max(1.0, abs(figure.value)):
        raise RefusedError(f"its answers are worth {mean:.3f}, and its figure is {figure.value:.3f}")


def item_key(group: GroupRecord) -> str:
    """16 hex digits; equal ones are one item, also of another model. Where the item was cut off, or shows an address of
    this process' memory, the prompt tells.
    """
    text = json.dumps(group.item, sort_keys=True)
    if group.item is None or " at 0x" in text or len(text) >= LONGEST_ITEM:
        text = prompt_of(group)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
