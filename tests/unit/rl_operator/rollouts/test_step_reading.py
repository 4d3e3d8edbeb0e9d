from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource, frame, group, lost, rollout, source, step

from rl_contract.rollout_records import GroupRecord
from rl_operator.rollouts.rollout_source import RolloutSteps
from rl_operator.rollouts.step_reading import MOST_REASONS, StepReading, StepSummary, Why

STALE = {"fate": "dropped", "reason": "stale", "why": "it was sampled 5 policy steps ago"}
EQUAL = {"fate": "dropped", "reason": "equal", "why": "all earned the same"}


def read(found: MemorySource, number: int = 12) -> tuple[StepSummary, list[tuple[str, int]]]:
    """The summary, and fate and number of each group."""
    reading = StepReading(found, RolloutSteps.of(found).step(number))
    records = [record for _, record in reading.records()]
    return reading.summary, [(each.fate, each.group) for each in records if isinstance(each, GroupRecord)]


def test_what_a_step_was() -> None:
    made = source({
        "12-1": [
            lost("timeout", count=2, tokens=40),
            group(0, rollout(1.0, "abcde", "dropped"), **EQUAL),
            step(12, {"trained": 6, "no_advantage": 3, "dropped": 2}, **{"reward/mean": 0.7}),
            group(0, rollout(1.0), rollout(0.0)),
            group(0, rollout(0.5, "abc", "no_advantage"), fate="no_advantage"),
            group(0, rollout(0.5, "ab", "dropped"), **STALE),
            group(0, rollout(0.25, "ab", "evaluated"), rollout(0.75, "ab", "evaluated"), fate="evaluated", step=12),
            group(1, rollout(0.0, "ab", "evaluated"), fate="evaluated", step=12, sets=["main"], greedy=True),
            group(2, rollout(0.0, "ab", "evaluated"), fate="evaluated", step=12, sets=["hard"]),
            group(3, rollout(0.5, "ab", "evaluated"), fate="evaluated", step=12, sets=["main", "hard"]),
        ]
    })  # fmt: skip
    summary, _ = read(made)
    assert summary.groups == {"trained": 1, "no_advantage": 1, "dropped": 2, "evaluated": 4}
    assert (summary.batch_reward, summary.evaluated.value, summary.attempt) == (0.7, 0.5, 1)
    assert summary.ledger.balances, "what the environment dropped never arrived"
    assert summary.dropped.counts == {
        Why("group", "equal", EQUAL["why"]): 1,
        Why("group", "stale", STALE["why"]): 1,
    }
    timeout = Why("rollout", "timeout", "it was timeout")
    assert (summary.lost.counts[timeout], summary.lost.tokens[timeout]) == (2, 40)
    assert list(summary.notes()) == []


def test_the_newest_attempt_says_what_was_trained() -> None:
    made = source({
        "12-1": [
            lost("raised"),
            step(12, {"trained": 3}, attempt=1),
            group(0, rollout(0.0)),
            group(0, rollout(0.0, "ab", "evaluated"), fate="evaluated"),
        ],
        "12-2": [lost("timeout"), step(12, {"trained": 6}, attempt=2), group(0, rollout(1.0), rollout(1.0))],
    })  # fmt: skip
    summary, groups = read(made)
    assert groups == [("trained", 0), ("evaluated", 0)]
    assert (summary.attempt, summary.batch_reward) == (2, 1.0)
    assert summary.ledger.balances
    assert sum(summary.lost.counts.values()) == 2, "losses of both"
    assert list(summary.notes()) == ["attempt 1 trained step 12, too; its weights were lost, and it is not shown"]


def test_a_newer_attempt_that_only_evaluated_takes_nothing_away() -> None:
    """It began at this step's checkpoint."""
    made = source({
        "12-1": [step(12, {"trained": 3}, attempt=1), group(0, rollout(1.0))],
        "12-3": [
            group(0, rollout(0.5, "ab", "evaluated"), fate="evaluated", step=12),
            {"record": "evaluation", "step": 12, "metrics": {"eval/percent_correct": 0.5}},
        ],
    })  # fmt: skip
    summary, groups = read(made)
    assert groups == [("evaluated", 0), ("trained", 0)]
    assert summary.attempt == 1
    assert summary.evaluation is not None
    assert summary.evaluation.metrics == {"eval/percent_correct": 0.5}
    assert list(summary.notes()) == []


def test_faults_and_unknown_records_are_told() -> None:
    torn = frame(group(1, rollout(0.0)))[:-4]
    content = frame(step(12, {"trained": 3}), b"no json\n", {"record": "weather"}, group(0, rollout(1.0))) + torn
    summary, groups = read(MemorySource({"000012-1.jsonl.zst": content}))
    assert ("trained", 0) in groups
    notes = list(summary.notes())
    assert notes[0] == "000012-1.jsonl.zst: 1 frame is torn or damaged: what was in it is missing"
    assert notes[1].startswith("000012-1.jsonl.zst: 1 line is not readable and left out; the first: Invalid JSON")
    assert notes[2] == "1 record of a kind that this version does not know was left out"


def test_a_file_that_a_full_disk_left_empty_is_told() -> None:
    summary, groups = read(MemorySource({"000012-1.jsonl.zst": b""}))
    assert groups == []
    assert list(summary.notes()) == [
        "000012-1.jsonl.zst: it is empty: nothing is written yet, or the disk was full",
    ]


def test_a_mean_that_overflows_is_unknown() -> None:
    summary, _ = read(source({"12-1": [group(0, rollout(-1e308), rollout(-1e308))]}))
    assert summary.rewards.value is None


def test_a_file_that_is_removed_meanwhile() -> None:
    made = source({"12-1": [lost()], "12-2": [step(12, {"trained": 3}, attempt=2), group(0, rollout(1.0))]})
    made.gone = {"000012-1.jsonl.zst"}
    summary, groups = read(made)
    assert groups == [("trained", 0)]
    assert list(summary.notes()) == ["000012-1.jsonl.zst was removed meanwhile, to make room"]


def test_each_file_is_read_once() -> None:
    made = source({"12-1": [step(12, {}, attempt=1)], "12-2": [step(12, {}, attempt=2)], "13-2": []})
    read(made)
    assert made.reads == ["000012-2.jsonl.zst", "000012-1.jsonl.zst"]


def test_a_new_reason_for_each_loss_does_not_fill_the_memory() -> None:
    summary, _ = read(source({"12-1": [lost(f"reason {number}") for number in range(MOST_REASONS + 50)]}))
    assert len(summary.lost.counts) == MOST_REASONS + 1
    assert summary.lost.counts[Why("rollout", "others", "")] == 50
