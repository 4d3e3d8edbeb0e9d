"""Checks of the environment's stages: its import, setup and items, its requests, its grader, and what it holds out.
Pure.
"""

from rl_contract.rollout_records import MAIN_SET
from tinker_atropos.check.findings import Check, Judgment, counted
from tinker_atropos.check.observations import AnswerSeen, GradedKind, HeldOut, Observations
from tinker_atropos.environments.items.grader_check import AnswerKind, GradedAnswer, grader_warnings

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
    return "ok", f"{counted(len(seen.item_seconds), 'item')}, {mean:.2f} s each"


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
    if not main.held_out:
        return "warning", "there are no held-out items: what is learned cannot be told from what is memorized"
    for name, items in seen.held_out.items():
        if items.overlap:
            of_set = "" if name == MAIN_SET else f" of the set {name}"
            said = (
                f"{items.overlap:,}{_compared(items)} of {counted(items.held_out, 'held-out item')}{of_set} ask what a "
                f"training item asks, so evaluations measure memory: keep them apart"
            )
            return "failed", said
    others = "".join(f", {name} {each.held_out:,}" for name, each in seen.held_out.items() if name != MAIN_SET)
    held_out = f"{main.held_out:,}{_compared(main)}{others}"
    return "ok", f"{held_out}, none of them among the {counted(main.training, 'training item')}"


def _compared(items: HeldOut) -> str:
    return "" if items.compared == items.held_out else f" of the first {items.compared:,}"


def _close(seen: Observations) -> Judgment | None:
    return ("ok", f"{seen.seconds.get('close', 0.0):.1f} s") if seen.passed("close") else None


IMPORT = Check("import", _import, owns="import")
SETUP = Check("setup", _setup, owns="setup")
ITEMS = Check("items", _items, owns="items")
REQUESTS = Check("requests", _requests)
GRADER = Check("grader", _grader, owns="grader")
HELD_OUT = Check("held_out", _held_out, owns="held_out")
CLOSE = Check("close", _close, owns="close")
