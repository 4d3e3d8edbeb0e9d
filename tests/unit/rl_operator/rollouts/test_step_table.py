from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource, frame, group, lost, rollout, source, step

from rl_operator.rollouts.rollout_query import RolloutSteps
from rl_operator.rollouts.step_table import StepRow, step_rows


def rows(found: MemorySource) -> list[StepRow]:
    return list(step_rows(found, RolloutSteps.of(found)))


def test_a_row_for_each_step() -> None:
    evaluated = group(0, rollout(1.0), fate="evaluated")
    dropped = group(0, rollout(1.0), fate="dropped", reason="stale")
    found = source({
        "0-1": [evaluated],
        "12-1": [step(12, {}, **{"reward/mean": 0.1}), group(0, rollout(1.0)), group(1, rollout(1.0)), evaluated],
        "12-2": [lost(count=3), step(12, {}, **{"reward/mean": 0.9}), group(0, rollout(1.0)), dropped],
    })  # fmt: skip
    first, second = rows(found)
    assert (first.step, first.reward, first.counts) == (0, None, {"evaluated": 1})
    assert (second.reward, second.attempts) == (0.9, (1, 2))
    assert second.counts == {"trained": 1, "dropped": 1, "lost": 3, "evaluated": 1}, "as the newest attempt trained it"
    assert second.bytes == sum(len(content) for name, content in found.files.items() if name.startswith("000012"))
    assert len(found.reads) == 3


def test_faults_are_counted() -> None:
    content = frame(step(1, {}), b"[]\n", {"record": "group", "fate": "\x1b[2J"})
    [row] = rows(MemorySource({"000001-1.jsonl.zst": content + b"garbage"}))
    assert (row.faults, row.counts) == (2, {"unknown": 1})


def test_a_file_that_is_removed_meanwhile() -> None:
    found = source({"1-1": [step(1, {})]})
    found.gone = {"000001-1.jsonl.zst"}
    [row] = rows(found)
    assert (row.reward, row.faults) == (None, 1)
