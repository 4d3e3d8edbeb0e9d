"""Whatever is done to a file: what is left of it is read, and nothing is raised."""

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource, frame, group, lost, rollout, step

from rl_operator.cli.views.rollout_view import step_rows
from rl_operator.rollouts.rollout_query import RolloutQuery, answers, streamed
from rl_operator.rollouts.rollout_source import RolloutSteps

NAME = "000003-1.jsonl.zst"
RECORDS: list[dict[str, Any]] = [
    lost("timeout", item=[1, "two"]),
    step(3, {"trained": 6}, **{"reward/mean": 0.5}),
    group(0, rollout(1.0, gap=0.5), rollout(0.0, messages=[{"role": "user", "content": "hi"}]), item={"a": 1}),
    group(0, rollout(0.5, "ab", "evaluated"), fate="evaluated", step=3),
]
WHOLE = b"".join(frame(record) for record in RECORDS)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=8), each, max_size=4),
    max_leaves=8,
)


def read_all(content: bytes) -> None:
    found = MemorySource({NAME: content})
    steps = RolloutSteps.of(found)
    for query in (RolloutQuery(step=3), RolloutQuery(step=3, sort="gap"), RolloutQuery(sort="staleness", limit=1)):
        for answer in answers(steps, query):
            assert answer.summary.step == 3
            assert list(answer.summary.ledger.sentences())
            assert all(isinstance(note, str) for note in answer.summary.notes())
            assert all(group.record for group in answer.groups)
    assert all(isinstance(each, bytes) for each in streamed(steps, RolloutQuery(step=3)))
    assert [row.step for row in step_rows(steps)] == [3]


@given(st.integers(0, len(WHOLE)))
def test_a_file_that_was_cut(length: int) -> None:
    read_all(WHOLE[:length])


@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_bytes_that_were_changed(seed: int, count: int) -> None:
    mangled, chance = bytearray(WHOLE), random.Random(seed)
    for _ in range(count):
        mangled[chance.randrange(len(mangled))] = chance.randrange(256)
    read_all(bytes(mangled))


@given(st.binary(max_size=400))
def test_anything_between_frames(garbage: bytes) -> None:
    read_all(frame(RECORDS[0]) + garbage + frame(*RECORDS[1:]))


@given(st.binary(max_size=400))
def test_anything_in_a_line(content: bytes) -> None:
    read_all(frame(RECORDS[1], content + b"\n", RECORDS[2]))


@given(st.sampled_from(RECORDS), st.data())
def test_any_value_in_any_field(record: dict[str, Any], data: st.DataObject) -> None:
    changed = json.loads(json.dumps(record))
    place: Any = changed
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not place[key] or not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON)
    read_all(frame(*RECORDS, changed))
