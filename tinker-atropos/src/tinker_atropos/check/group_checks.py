"""Checks of the groups: what came of the rollouts, who would take them, and what their rewards teach. Pure."""

import math
from collections import Counter

from tinker_atropos.check.findings import Check, Judgment, counted
from tinker_atropos.check.observations import Observations
from tinker_atropos.environments.runner.reporting.counters import WHY_FILTERED, FilterReason

FEW_TEACH = 0.5
"""Share of the groups, below which too few have rewards that differ."""

TRY_A_MODEL = "try --model, whose answers may be right"


def _rollouts(seen: Observations) -> Judgment | None:
    counters = seen.counters
    failed, lost = counters.rollouts.failed_by, counters.failed_by
    if not (failed or lost or counters.made or counters.filtered):
        return None
    if lost and not counters.made:
        return "failed", f"no group was made, the last one for {counters.last_failure}"
    if lost or failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in (failed + Counter()).items())
        said = f"{counted(failed.total(), 'rollout')} failed ({kinds}), " if failed else ""
        last = counters.last_failure or counters.rollouts.last_failure
        return "warning", f"{said}{counted(lost.total(), 'group')} of {seen.groups_asked} came to nothing: {last}"
    rollouts = f"{counted(counters.rollouts.made, 'rollout')} in " if counters.rollouts.made else ""
    return "ok", f"{rollouts}{counted(counters.made, 'group')}, none failed"


def _groups(seen: Observations) -> Judgment | None:
    refused = [group.refused for group in seen.groups if group.refused is not None]
    if refused:
        return "failed", f"the trajectory API would refuse {len(refused)} of {len(seen.groups)} groups: {refused[0]}"
    dropped = seen.counters.filtered_by
    if dropped["wrong_size"] or dropped["too_long"]:
        reason: FilterReason = "wrong_size" if dropped["wrong_size"] else "too_long"
        return "failed", f"{counted(dropped[reason], 'group')} would be dropped, because {WHY_FILTERED[reason]}"
    if not seen.groups:
        if not dropped:
            return None
        return (
            "warning",
            f"the environment kept back all of its groups, as many do when all rewards are equal: {_wanted(seen)}",
        )
    if seen.group_size < 2:
        return "failed", "a group of one teaches nothing, its only reward is its baseline: set group_size to 8 or so"
    back = f", {dropped.total()} kept back by the environment" if dropped else ""
    return "ok", f"{counted(len(seen.groups), 'group')} of {seen.group_size} would be accepted{back}"


def _wanted(seen: Observations) -> str:
    """What would bring other rewards."""
    return f"define gold_answer, or {TRY_A_MODEL}" if seen.knows_answers and not seen.knows_gold else TRY_A_MODEL


def _training(seen: Observations) -> Judgment | None:
    if seen.model is not None:
        return "unknown", "the trainer takes only what its own server has sampled; leave --model out to check it"
    if not seen.accepted:
        return None
    unusable = [group.unusable for group in seen.accepted if group.unusable is not None]
    if unusable:
        return "failed", f"the trainer would drop {len(unusable)} of {len(seen.accepted)} groups: {unusable[0]}"
    shaped = sorted(frozenset[str]().union(*(each.shaped for each in seen.sequences)))
    if shaped:
        said = (
            f"rollouts are sampled with {', '.join(shaped)}, and dropped where the backend's logprobs are not of "
            f"that distribution: sample with temperature 1, top_p 1 and no top_k"
        )
        return "warning", said
    trained = sum(group.trained_rollouts for group in seen.accepted)
    rollouts = sum(len(group.rewards) for group in seen.accepted)
    others = "" if trained == rollouts else "; the others have no advantage"
    return "ok", f"{trained} of {counted(rollouts, 'rollout')} would be trained{others}"


def _rewards(seen: Observations) -> Judgment | None:
    rewards = [reward for group in seen.groups for reward in group.rewards]
    if not rewards:
        return None
    wrong = sum(not math.isfinite(reward) for reward in rewards)
    if wrong:
        return "failed", f"{wrong} of {counted(len(rewards), 'reward')} are not finite numbers"
    return "ok", f"{min(rewards):g} to {max(rewards):g}, mean {sum(rewards) / len(rewards):.3g}"


def _spread(seen: Observations) -> Judgment | None:
    groups = seen.accepted
    if not groups:
        return None
    teach = sum(group.teaches for group in groups)
    equal = f"all rewards are equal in {len(groups) - teach} of {counted(len(groups), 'group')}"
    if teach / len(groups) >= FEW_TEACH:
        return "ok", f"rewards differ in {teach} of {counted(len(groups), 'group')}"
    if seen.model is not None:
        return "warning", f"{equal}, which teach nothing: choose items of another difficulty, or a larger group_size"
    if not seen.knows_gold:
        return "unknown", f"{equal}, and no answer is known to be right: {_wanted(seen)}"
    return (
        "warning" if teach else "failed",
        f"{equal}, although right, wrong and empty answers were among them: from these nothing is learned",
    )


ROLLOUTS = Check("rollouts", _rollouts, owns="rollouts")
GROUPS = Check("groups", _groups)
TRAINING = Check("training", _training)
REWARDS = Check("rewards", _rewards)
SPREAD = Check("spread", _spread)
