from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import group, line, rollout, sequence

from rl_contract.rollout_records import GroupRecord, RolloutRecord, SequenceRecord, read_record
from rl_operator.rollouts.rollout_figures import (
    FIGURES,
    Figure,
    answer_of,
    prompt_of,
    spans,
    strings_in,
    texts_of,
    tokens_by_fate,
)


def read(record: dict[str, Any]) -> GroupRecord:
    found = read_record(line(record))
    assert isinstance(found, GroupRecord)
    return found


def only(record: dict[str, Any]) -> RolloutRecord:
    return read(group(0, record)).rollouts[0]


@pytest.mark.parametrize(
    ("figure", "made", "value"),
    [
        ("reward", rollout(0.5), 0.5),
        ("reward", rollout(None), None),
        ("reward", rollout(float("nan")), None),
        ("advantage", rollout(0.5, advantage=-0.25), -0.25),
        ("length", rollout(1.0, "abcd", given="xy"), 4),
        ("length", rollout(1.0, sequences=[]), 0),
        ("length", rollout(1.0, "ab", "not_sampled"), 0),
        ("gap", rollout(1.0, gap=0.75), 0.75),
        ("gap", rollout(1.0, sequences=[{"tokens": [1], "pieces": ["a"], "logprobs": [-1.0]}]), None),
        ("staleness", rollout(1.0, policy=8), 3),
        ("staleness", rollout(1.0, policy=11), 0),
        ("staleness", rollout(1.0, policy=12), 0),
        ("staleness", rollout(1.0, sequences=[]), None),
    ],
)
def test_figures_of_a_rollout_in_step_12(figure: Figure, made: dict[str, Any], value: float | None) -> None:
    assert FIGURES[figure](only(made), 12) == value


@pytest.mark.parametrize(
    ("fates", "covered"),
    [
        ([], [(0, 4, "unknown")]),
        ([[0, 4, "trained"]], [(0, 4, "trained")]),
        ([[1, 2, "first"]], [(0, 1, "unknown"), (1, 2, "first"), (2, 4, "unknown")]),
        ([[0, 10**18, "trained"]], [(0, 4, "trained")]),
        ([[0, 3, "trained"], [1, 4, "muted"]], [(0, 3, "trained"), (3, 4, "muted")]),
        ([[3, 1, "trained"], [9, 12, "trained"]], [(0, 4, "unknown")]),
    ],
)
def test_spans_cover_all_tokens_once(fates: list[Any], covered: list[Any]) -> None:
    made = SequenceRecord.model_validate({"tokens": [1, 2, 3, 4], "pieces": list("abcd"), "fates": fates})
    assert list(spans(made)) == covered


def test_tokens_by_fate_leave_out_the_shared_prompt() -> None:
    found = read(group(0, rollout(1.0, "abc", given="x"), rollout(0.0, "ab", "clipped"), rollout(0.0, "a", "strange")))
    assert tokens_by_fate(found) == {"prompt": 1, "trained": 3, "clipped": 2, "unknown": 1}


def test_texts() -> None:
    talk = [{"role": "user", "content": ["deep", {"text": "down"}]}]
    found = read(group(0, rollout(1.0, "yes", given=" it", messages=talk), item={"key": "the item"}))
    one = found.rollouts[0]
    assert (prompt_of(found), prompt_of(found, one), answer_of(one)) == ("sort", "sort it", "yes")
    assert list(texts_of(found, one)) == ["sort ityes", "user", "deep", "down", "the item"]


def test_an_answer_of_several_turns_has_what_was_said_between_them() -> None:
    turns = sequence("ab") | {"fates": [[0, 1, "trained"], [1, 2, "prompt"]]}
    assert answer_of(only(rollout(1.0, sequences=[turns, sequence("c", given="again ")]))) == "ab\nc"


def test_texts_in_deep_json() -> None:
    deep: Any = "end"
    for _ in range(10_000):
        deep = [deep]
    assert list(strings_in([deep, 1, None, {"a": "b"}])) == ["end", "b"]
