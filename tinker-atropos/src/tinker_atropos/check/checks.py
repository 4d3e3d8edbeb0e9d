"""The checks, and what they find: one finding for each thing that is checked, always all of them, in one order. Pure.

They are about the environment's stages (its import, setup and items, its requests, its grader, and what it holds out),
about its groups (what came of the rollouts, who would take them, and what their rewards teach), and about its
sequences: are the trained tokens those that were sampled, and all of them?
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rl_contract.rollout_records import MAIN_SET
from tinker_atropos.check.observations import AnswerSeen, GradedKind, HeldOutOverlap, Observations, SequenceSeen, Stage
from tinker_atropos.environments.items.grader_check import AnswerKind, GradedAnswer, grader_warnings
from tinker_atropos.environments.runner.reporting.counters import WHY_FILTERED, FilterReason

Verdict = Literal["ok", "warning", "failed", "unknown"]
"""`unknown`: there was nothing to judge by, and the finding's sentence says what would help."""

Judgment = tuple[Verdict, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """`said` is one sentence: what was seen and, unless all is well, what to do."""

    check: str
    verdict: Verdict
    said: str


@dataclass(frozen=True, slots=True)
class Check:
    """`judge` is asked once there is something to judge: None from it means that there is not. A stage of the check
    `owns` its failures: what broke it is this check's finding.
    """

    name: str
    judge: Callable[[Observations], Judgment | None]
    owns: Stage | None = None


NOT_REACHED: Judgment = ("unknown", "not reached")
NOTHING_SENT: Judgment = ("unknown", "there is no group to judge by")


def worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict of the whole check. What is unknown counts only if nothing else is known."""
    ranked: tuple[Verdict, ...] = ("failed", "warning", "ok")
    return next((verdict for verdict in ranked if verdict in verdicts), "unknown")


def counted(number: int, noun: str) -> str:
    """`1 group`, `3 groups`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


SLOW_SETUP_SECONDS = 300.0
"""Setups are waited for, but every attempt of a run waits again."""


def _import(seen: Observations) -> Judgment | None:
    return ("ok", f"{seen.seconds.get('import', 0.0):.1f} s beyond atroposlib's own") if seen.passed("import") else None


def _setup(seen: Observations) -> Judgment | None:
    if not seen.passed("setup"):
        return None
    seconds = seen.seconds.get("setup", 0.0)
    if seconds > SLOW_SETUP_SECONDS:
        return "warning", f"{seconds:.0f} s, which every attempt of a run waits for again: load less, or keep it ready"
    return "ok", f"{seconds:.1f} s"


def _items(seen: Observations) -> Judgment | None:
    if not seen.item_seconds:
        return None
    mean = sum(seen.item_seconds) / len(seen.item_seconds)
    said = "; ".join([f"{counted(len(seen.item_seconds), 'item')}, {mean:.2f} s each", *seen.item_warnings])
    return "warning" if seen.item_warnings and not seen.draws_items else "ok", said


def _requests(seen: Observations) -> Judgment | None:
    if seen.model is not None:
        return "unknown", f"they went to the provider of {seen.model}; leave --model out to check them"
    if seen.requests_refused:
        refusal, _ = seen.requests_refused.most_common(1)[0]
        return "failed", f"the server refused {counted(seen.requests_refused.total(), 'request')}: {refusal}"
    if not seen.item_seconds:
        return None
    if not seen.requests:
        return "failed", "nothing was asked of the policy: sample through self.server, whose address a run sets"
    routes = ", ".join(f"{count} to {path}" for path, count in sorted(seen.requests.items()))
    return "ok", f"{routes}, none refused"


def _grader(seen: Observations) -> Judgment | None:
    graded = seen.graded or from_rollouts(seen)
    if not graded:
        if not (seen.groups or seen.stage == "done"):
            return None
        wanted = ": define score_answer and gold_answer" if seen.knows_answers else ""
        return "unknown", f"no reward of an empty, wrong or right answer is known{wanted}"
    answers = [GradedAnswer(each.kind, each.answer, each.reward) for each in graded]
    if warnings := grader_warnings(answers, seen.is_correct):
        return ("failed" if seen.graded else "warning"), "; ".join(warnings)
    kinds = dict.fromkeys(each.kind for each in graded)
    rewards = ", ".join(f"{kind} {_mean(graded, kind):g}" for kind in kinds)
    how = "" if seen.graded else ", as rollouts were rewarded"
    if "gold" not in kinds and seen.graded:
        how = "; define gold_answer, and it is checked whether the right answer is paid for"
    return "ok", f"mean rewards of answers: {rewards}{how}"


def from_rollouts(seen: Observations) -> list[GradedKind]:
    """The best paid empty answer to each item, and the best paid wrong one. Random tokens are taken for wrong."""
    found: list[GradedKind] = []
    for group in seen.accepted:
        empty, wrong = group.answers_of("empty"), [*group.answers_of("wrong"), *group.answers_of("random")]
        of_kinds: tuple[tuple[AnswerKind, list[AnswerSeen]], ...] = (("empty", empty), ("wrong", wrong))
        for kind, answers in of_kinds:
            if answers:
                best = max(answers, key=lambda answer: answer.reward)
                found.append(GradedKind(kind, best.text, best.reward, certain=False))
    return found


def _mean(graded: list[GradedKind], kind: str) -> float:
    rewards = [each.reward for each in graded if each.kind == kind]
    return round(sum(rewards) / len(rewards), 4)


def _held_out(seen: Observations) -> Judgment | None:
    if seen.held_out is None:
        return ("unknown", "the environment evaluates by code of its own") if seen.stage == "done" else None
    main = seen.held_out[MAIN_SET]
    if not main.items:
        return "warning", "there are no held-out items: what is learned cannot be told from what is memorized"
    for name, items in seen.held_out.items():
        if items.overlap:
            of_set = "" if name == MAIN_SET else f" of the set {name}"
            said = (
                f"{items.overlap:,}{_compared(items)} of {counted(items.items, 'held-out item')}{of_set} ask what a "
                f"training item asks, so evaluations measure memory: keep them apart"
            )
            return "failed", said
    others = "".join(f", {name} {each.items:,}" for name, each in seen.held_out.items() if name != MAIN_SET)
    held_out = f"{main.items:,}{_compared(main)}{others}"
    left_out = f"; {counted(main.left_out, 'item')} that would be are left out" if main.left_out else ""
    return "ok", f"{held_out}, none of them among the {counted(main.training_items, 'training item')}{left_out}"


def _compared(items: HeldOutOverlap) -> str:
    return "" if items.compared == items.items else f" of the first {items.compared:,}"


def _close(seen: Observations) -> Judgment | None:
    return ("ok", f"{seen.seconds.get('close', 0.0):.1f} s") if seen.passed("close") else None


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


NEARLY_FULL = 0.9
"""Share of a limit of tokens, past which longer answers are likely to be lost or cut."""


def _masks(seen: Observations) -> Judgment | None:
    known = [each for each in seen.sequences if each.sampled or seen.model is not None]
    if not seen.sequences:
        return None
    if not any(each.trained for each in seen.sequences):
        return "failed", "no token would be trained, all masks are -100: set the token's id where the policy sampled it"
    if seen.model is not None:
        return "ok", f"{_share(seen.sequences)} of the tokens would be trained"
    beyond = sum(each.trained - each.trained_sampled for each in known)
    left_out = sum(each.left_out for each in known)
    if beyond:
        return (
            "warning",
            f"masks mark {counted(beyond, 'token')} that the policy did not sample, such as a prompt's: set -100 there",
        )
    if left_out:
        said = (
            f"masks leave out {counted(left_out, 'token')} of answers that are trained otherwise: set the token's "
            f"id wherever the policy sampled it, at the end of a turn, too"
        )
        return "warning", said
    return "ok", f"{_share(seen.sequences)} of the tokens would be trained, and all of these were sampled"


def _share(sequences: Sequence[SequenceSeen]) -> str:
    return f"{sum(each.trained for each in sequences) / sum(each.tokens for each in sequences):.0%}"


def _tokens(seen: Observations) -> Judgment | None:
    if seen.model is not None:
        return "unknown", "a provider does not tell which tokens it sampled; leave --model out to check them"
    trained = [each for each in seen.sequences if each.trained]
    if not trained:
        return None
    strange = sum(not each.sampled for each in trained)
    if not strange:
        return "ok", f"all {counted(len(trained), 'sequence')} have the tokens that were sampled"
    said = (
        f"{strange} of {counted(len(trained), 'sequence')} have other tokens than those sampled: they were made "
        f"from text again; return those of the server's answer (managed_server's nodes, tokens_and_logprobs_completion)"
    )
    return "failed" if strange == len(trained) else "warning", said


def _logprobs(seen: Observations) -> Judgment | None:
    if seen.model is not None:
        return "unknown", "a provider's are not those of the trained model; leave --model out to check them"
    found = [each for each in seen.sequences if each.trained_sampled]
    if not found:
        return None
    kinds = Counter(each.logprobs for each in found)
    if kinds["different"]:
        said = (
            f"inference_logprobs of {kinds['different']} of {counted(len(found), 'sequence')} are not those sampled, "
            f"and the trainer takes its own: they may be shifted by a position"
        )
        return "warning", said
    if kinds["not given"]:
        return "ok", f"not given for {counted(kinds['not given'], 'sequence')}: the trainer has recorded them"
    return "ok", "given as sampled"


def _length(seen: Observations) -> Judgment | None:
    lengths = [each.tokens for each in seen.sequences]
    if not lengths:
        return None
    said = f"{sum(lengths) / len(lengths):.0f} tokens a sequence, {max(lengths):,} at most"
    if max(lengths) > NEARLY_FULL * seen.longest_trained:
        limit = f"trainer.max_token_trainer_length ({seen.longest_trained:,})"
        return "warning", f"{said}: longer ones than {limit} are lost; shorten them, or raise it"
    prompt = max(each.tokens - (each.sampled or each.trained) for each in seen.sequences)
    if prompt > NEARLY_FULL * seen.max_token_length:
        return "warning", f"{said}: prompts leave little of max_token_length ({seen.max_token_length:,}): raise it"
    return "ok", f"{said}, of max_token_length {seen.max_token_length:,}"


CHECKS: Final = (
    Check("import", _import, owns="import"),
    Check("setup", _setup, owns="setup"),
    Check("items", _items, owns="items"),
    Check("requests", _requests),
    Check("rollouts", _rollouts, owns="rollouts"),
    Check("groups", _groups),
    Check("masks", _masks),
    Check("tokens", _tokens),
    Check("logprobs", _logprobs),
    Check("length", _length),
    Check("training", _training),
    Check("rewards", _rewards),
    Check("spread", _spread),
    Check("grader", _grader, owns="grader"),
    Check("held_out", _held_out, owns="held_out"),
    Check("close", _close, owns="close"),
)


def findings(seen: Observations) -> list[Finding]:
    return [_find(check, seen) for check in CHECKS]


def _find(check: Check, seen: Observations) -> Finding:
    if check.owns is not None and check.owns in seen.broken:
        return Finding(check.name, "failed", seen.broken[check.owns])
    return Finding(check.name, *(check.judge(seen) or (NOTHING_SENT if seen.stage == "done" else NOT_REACHED)))
