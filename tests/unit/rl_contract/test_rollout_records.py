import math
from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import group, line, lost, rollout, step

from rl_contract.rollout_records import (
    BadLineError,
    EvaluationRecord,
    GroupRecord,
    LostRecord,
    SharedPrompt,
    StepRecord,
    UnknownRecord,
    line_of,
    read_head,
    read_record,
)

GROUP = group(3, rollout(1.0, components={"format": 0.5}, messages=[{"role": "user", "content": "hi"}]))


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (step(12, {"trained": 3}, **{"reward/mean": 0.5}), StepRecord),
        (GROUP, GroupRecord),
        ({"record": "evaluation", "step": 12, "metrics": {"eval/n": 64}}, EvaluationRecord),
        (lost(item={"a": [1]}), LostRecord),
        ({"record": "weather", "degrees": 3}, UnknownRecord),
    ],
)
def test_each_kind_is_read(record: dict[str, Any], kind: type) -> None:
    read = read_record(line(record))
    assert (type(read), read.record) == (kind, record["record"])


def test_everything_that_is_written_is_read() -> None:
    read = read_record(line(GROUP))
    written = GROUP | {"rollouts": [GROUP["rollouts"][0]]}
    assert read.model_dump(mode="json", exclude_unset=True) == written


def test_a_writer_fills_only_fields_that_readers_know() -> None:
    assert line_of(LostRecord, reason="timeout") == {"record": "lost", "reason": "timeout"}
    assert line_of(SharedPrompt, tokens=(1, 2)) == {"tokens": (1, 2)}
    with pytest.raises(TypeError, match="LostRecord has no color"):
        line_of(LostRecord, reason="timeout", color="red")


def test_unknown_fields_are_skipped() -> None:
    read = read_record(line(GROUP | {"color": "red", "rollouts": [rollout(0.0, taste="sour")]}))
    assert isinstance(read, GroupRecord)
    assert read.rollouts[0].reward == 0.0


BAD: dict[str, tuple[bytes, str]] = {
    "torn": (line(GROUP)[:-20], "Invalid JSON"),
    "no object": (b"[1, 2]", "should be an object"),
    "no record": (b'{"group": 1}', "Unable to extract tag"),
    "record is not text": (b'{"record": 7}', "record"),
    "wrong type": (line(GROUP | {"rollouts": "none"}), "rollouts"),
    "wrong type deep inside": (line(group(1, rollout(1.0, sequences=[{"tokens": ["x"], "pieces": [""]}]))), "tokens"),
    "lists of different lengths": (
        line(group(1, rollout(1.0, sequences=[{"tokens": [1, 2], "pieces": ["a"]}]))),
        "pieces has 1 values for 2 tokens",
    ),
    "negative number of a group": (line(GROUP | {"group": -1}), "group"),
    "deep nesting": (b'{"record": "lost", "item": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", "Invalid JSON"),
    "a number of a million digits": (b'{"record": "lost", "count": ' + b"9" * 1_000_000 + b"}", "Invalid JSON"),
    "binary": (bytes(range(256)), "Invalid JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_says_what_is_wrong(name: str) -> None:
    content, said = BAD[name]
    with pytest.raises(BadLineError, match=said) as raised:
        read_record(content)
    assert len(str(raised.value)) <= 200


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"record": "lost", "why": "a\xff\xfeb"}', "a��b"),
        (b'{"record": "lost", "why": "a\\ud800b"}', "a?b"),
        (b'{"record": "lost", "why": "a\\ud83d\\ude00b"}', "a😀b"),
        (b'{"record": "lost", "why": "a\\u0000b"}', "a\0b"),
    ],
)
def test_what_is_no_unicode_costs_itself_only(content: bytes, why: str) -> None:
    read = read_record(content)
    assert isinstance(read, LostRecord)
    assert read.why == why


def test_numbers_that_are_none() -> None:
    read = read_record(b'{"record": "step", "step": 1, "metrics": {"a": NaN, "b": Infinity, "c": 1e999, "d": null}}')
    assert isinstance(read, StepRecord)
    values = read.metrics
    assert values["a"] is not None
    assert math.isnan(values["a"])
    assert (values["b"], values["c"], values["d"]) == (math.inf, math.inf, None)


def test_a_head_has_no_more_than_counts_need() -> None:
    head = read_head(line(group(1, rollout(1.0), fate="dropped", reason="stale")))
    assert (head.record, head.fate, head.reason) == ("group", "dropped", "stale")
