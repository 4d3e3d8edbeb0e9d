"""The report of observations: what is stable, and what has not been seen."""

import json
import math

import pytest

from tinker_atropos.check.check_report import as_json, as_text, findings
from tinker_atropos.check.checks import worst
from tinker_atropos.check.observations import AnswerSeen, GroupSeen, Observations, SequenceSeen


def seen_group(*rewards: float, **values: object) -> GroupSeen:
    sequences = tuple(SequenceSeen(20, 4, sampled=4, trained_sampled=4) for _ in rewards)
    settled: dict[str, object] = {
        "sequences": sequences,
        "rollouts": tuple(range(len(rewards))),
        "answers": tuple(AnswerSeen("", reward, 20) for reward in rewards),
        **values,
    }
    return GroupSeen(rewards, **settled)  # type: ignore[arg-type]


def test_what_was_never_reached_is_null_and_unknown() -> None:
    seen = Observations("mine.py")
    found = findings(seen)
    assert {each.verdict for each in found} == {"unknown"}
    assert {each.said for each in found} == {"not reached"}
    wire = json.loads(as_json(seen, found))
    assert wire["verdict"] == "unknown"
    assert wire["rewards"] == {"min": None, "max": None, "mean": None}
    assert wire["tokens"]["mean"] is wire["tokens"]["sampled"] is wire["held_out"] is wire["item"] is None


def test_what_breaks_a_stage_is_the_finding_of_its_check() -> None:
    seen = Observations("mine.py", stage="setup")
    seen.break_off("not done within 6 s")
    found = {each.check: each for each in findings(seen)}
    assert (found["setup"].verdict, found["setup"].said) == ("failed", "not done within 6 s")
    assert found["items"].verdict == "unknown"
    seen.stage = "done"
    seen.break_off("too late")
    assert seen.broken == {"setup": "not done within 6 s"}


def test_rewards_that_are_not_numbers_are_still_json() -> None:
    seen = Observations("mine.py", groups=[GroupSeen((1.0, math.nan), refused="scores[1]: …"), seen_group(0.0, 0.5)])
    wire = json.loads(as_json(seen, findings(seen)))
    assert wire["rewards"] == {"min": 0.0, "max": 1.0, "mean": 0.5}
    assert (wire["groups"]["sent"], wire["groups"]["refused"]) == (2, 1)


def test_a_rollout_of_two_kinds_is_of_none() -> None:
    kinds = ("gold", "gold", "empty", "gold")
    sequences = tuple(SequenceSeen(2, 1, kind=kind) for kind in kinds)  # type: ignore[arg-type]
    answers = tuple(AnswerSeen(str(index), index / 4, 1) for index in range(4))
    group = GroupSeen((1.0, 0.5, 0.25), sequences=sequences, rollouts=(0, 1, 1, 2), answers=answers)
    assert [answer.text for answer in group.answers_of("gold")] == ["0", "3"]
    assert group.answers_of("empty") == []


def test_long_texts_are_cut_for_people_only() -> None:
    answer = AnswerSeen("x" * 1000, 1.0, 5, "gold")
    seen = Observations("mine.py", group_size=1, groups=[seen_group(1.0, prompt='say "x"\n', answers=(answer,))])
    text = as_text(seen, findings(seen))
    assert '  one item: "say \\"x\\"\\n"' in text
    assert max(map(len, text.splitlines())) < 300
    assert json.loads(as_json(seen, findings(seen)))["item"]["answers"][0]["text"] == answer.text


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [(["ok", "unknown"], "ok"), (["ok", "warning"], "warning"), (["failed", "warning"], "failed"), ([], "unknown")],
)
def test_the_worst_that_is_known_counts(verdicts: list[str], verdict: str) -> None:
    assert worst(verdicts) == verdict  # type: ignore[arg-type]


LENGTHS = {
    "short": (SequenceSeen(20, 4, sampled=4), 64, 9000, "ok"),
    "nearly too long to be trained": (SequenceSeen(8500, 4000, sampled=4000), 9000, 9000, "warning"),
    "no room for an answer": (SequenceSeen(63, 3, sampled=3), 64, 9000, "warning"),
}


@pytest.mark.parametrize(("sequence", "length", "trained", "verdict"), LENGTHS.values(), ids=LENGTHS)
def test_lengths_are_compared_with_both_limits(sequence: SequenceSeen, length: int, trained: int, verdict: str) -> None:
    group = seen_group(1.0, sequences=(sequence,))
    seen = Observations("mine.py", groups=[group], max_token_length=length, longest_trained=trained)
    assert {each.check: each.verdict for each in findings(seen)}["length"] == verdict


def test_a_rollouts_reward_judges_the_grader_where_nothing_else_does() -> None:
    kinds = ("empty", "random")
    sequences = tuple(SequenceSeen(2, 1, sampled=1, trained_sampled=1, kind=kind) for kind in kinds)  # type: ignore[arg-type]
    answers = (AnswerSeen("", 1.0, 2, "empty"), AnswerSeen("x", 0.25, 2, "random"))
    group = GroupSeen((1.0, 0.25), sequences=sequences, rollouts=(0, 1), answers=answers)
    seen = Observations("mine.py", groups=[group], stage="done")
    grader = {each.check: each for each in findings(seen)}["grader"]
    assert grader.verdict == "warning"
    assert grader.said.startswith("the grader pays 1 for the worthless answer '' (1 of 1 tries)")
