from tinker_atropos.environments.rollout.rollouts import FailedRollout
from tinker_atropos.environments.runner.reporting.counters import Counters
from tinker_atropos.environments.runner.reporting.rollout_counts import MIN_RECENT, RECENT
from tinker_atropos.environments.runner.reporting.shared_state import SharedState

SLOW = FailedRollout("timeout", "TimeoutError: took longer than 10 s", 12)
BROKEN = FailedRollout("raised", "ValueError: no")


def test_failed_rollouts_are_counted_by_kind():
    counters = Counters()
    for rollout in (SLOW, SLOW, BROKEN):
        counters.rollout_failed(rollout)
    metrics = counters.take_metrics()
    assert metrics["env/rollouts_failed"] == 3
    assert {kind: metrics[f"env/rollouts_failed_{kind}"] for kind in ("raised", "timeout", "transport")} == {
        "raised": 1,
        "timeout": 2,
        "transport": 0,
    }
    assert counters.to_wire()["rolloutsFailed"] == {"timeout": 2, "raised": 1}


def test_more_than_a_fifth_is_a_warning_that_goes_when_they_succeed_again():
    shared = SharedState(total_steps=10)
    counts = shared.counters.rollouts
    counts.were_scored(MIN_RECENT - 5)
    for rollout in (SLOW, SLOW, BROKEN, SLOW):
        shared.counters.rollout_failed(rollout)
    assert shared.warnings == [], "too few to say"
    shared.counters.rollout_failed(SLOW)
    [warning] = shared.warnings
    assert warning == (
        "5 of the last 20 rollouts failed (4 took too long, 1 raised an error); the last one with TimeoutError: took "
        "longer than 10 s"
    )
    counts.were_scored(RECENT)
    assert shared.warnings == []
    shared.grader_warnings = ("the grader pays",)
    assert shared.warnings == ["the grader pays"]
