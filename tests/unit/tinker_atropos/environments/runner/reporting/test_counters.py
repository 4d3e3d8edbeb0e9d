import pytest

from rl_contract.logged_metrics import describe
from tinker_atropos.environments.rollout.rollouts import FailedRollout
from tinker_atropos.environments.runner.reporting.counters import (
    HOPELESS_AFTER,
    MIN_ROLLOUTS,
    RECENT_GROUPS,
    RECENT_ROLLOUTS,
    STALLED_AFTER,
    Counters,
    filter_reason,
    generated_tokens,
    rewards,
)
from tinker_atropos.environments.runner.reporting.shared_state import SharedState


def test_rewards_are_averaged_since_the_last_report():
    counters = Counters()
    counters.scored([1.0, 0.0])
    counters.scored([1.0, 1.0])
    counters.kept = 1
    metrics = counters.take_metrics()
    assert (metrics["env/reward_mean"], metrics["env/groups_kept"]) == (0.75, 1)
    assert counters.take_metrics() == {}
    counters.scored([0.5, "oops", None, float("nan")])
    assert counters.take_metrics()["env/reward_mean"] == 0.5


def test_every_loss_is_counted_under_its_reason():
    counters = Counters()
    for reason, tokens in (("equal", 40), ("equal", 2), ("too_long", 100), ("wrong_size", 7), ("by_environment", 1)):
        counters.was_filtered(reason, tokens)
    for reason, tokens in (("raised", 3), ("overdue", 0), ("overdue", 0), ("empty", 0), ("undelivered", 0)):
        counters.has_failed(reason, "a sentence", tokens)
    counters.was_kept()
    metrics = counters.take_metrics()
    assert {name: value for name, value in metrics.items() if value} == {
        "env/groups_filtered": 5,
        "env/groups_filtered_equal": 2,
        "env/groups_filtered_too_long": 1,
        "env/groups_filtered_wrong_size": 1,
        "env/groups_filtered_by_environment": 1,
        "env/tokens_filtered": 150,
        "env/groups_failed": 5,
        "env/groups_failed_raised": 1,
        "env/groups_failed_overdue": 2,
        "env/groups_failed_empty": 1,
        "env/groups_failed_undelivered": 1,
        "env/tokens_failed": 3,
        "env/groups_kept_ratio": pytest.approx(1 / 6),
    }
    assert "env/reward_mean" not in metrics


def test_refusals_are_counted_by_kind_and_each_kind_is_reported_once():
    counters = Counters()
    news = [counters.was_refused(1, f"422: scores.{at}: input should be finite") for at in range(3)]
    assert news == [True, False, False]
    assert counters.was_refused(2, "422: tokens is missing")
    assert counters.to_wire()["refusals"] == {"N: scores.N: input should be finite": 3, "N: tokens is missing": 2}
    for letter in "abcdefghijklmnopqrstuvwxyz":
        counters.was_refused(1, letter)
    assert len(counters.refused_by) == 21
    assert counters.refused_by["other"] == 8
    assert counters.refused == 5 + 26


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("equal", "the last 20 groups were dropped, because all rewards within each were equal"),
        ("by_environment", "the last 20 groups were dropped, because the environment returned none of them"),
    ],
)
def test_a_stall_is_reported_with_its_reason(reason, sentence, caplog):
    shared = SharedState(total_steps=3, phase="making rollouts")
    counters = shared.counters
    for _ in range(STALLED_AFTER - 1):
        counters.was_filtered(reason, 4)
    assert (counters.stalled, caplog.text) == (None, "")
    counters.was_filtered(reason, 4)
    assert sentence in caplog.text
    assert counters.stalled.startswith(sentence)
    assert sentence in shared.unready()
    assert shared.to_wire()["stalled"] == counters.stalled
    assert counters.take_metrics()["env/groups_filtered_in_row"] == 20
    counters.was_filtered("too_long" if reason == "equal" else "equal", 4)
    assert f"{sentence.replace('20', '21').replace('because', '20 because')}" in (counters.stalled or "")
    counters.was_kept()
    assert counters.stalled is None
    assert counters.take_metrics()["env/groups_filtered_in_row"] == 0


HOPELESS = {
    "too many failures": (lambda counters: [counters.has_failed("raised", "x") for _ in range(HOPELESS_AFTER)], True),
    "one less": (lambda counters: [counters.has_failed("raised", "x") for _ in range(HOPELESS_AFTER - 1)], False),
    "a group in between": (
        lambda counters: [
            counters.has_failed("raised", "x") if i != 10 else counters.was_kept() for i in range(HOPELESS_AFTER + 1)
        ],
        False,
    ),
    "groups that are none": (
        lambda counters: [(counters.scored([]), counters.has_failed("raised", "x")) for _ in range(HOPELESS_AFTER)],
        True,
    ),
    "groups that the environment keeps to itself": (
        lambda counters: [counters.was_filtered("by_environment", 5) for _ in range(HOPELESS_AFTER + 1)],
        False,
    ),
    "too many refusals": (lambda counters: counters.was_refused(HOPELESS_AFTER, "422"), True),
}


@pytest.mark.parametrize(("events", "hopeless"), HOPELESS.values(), ids=HOPELESS)
def test_hopeless(events, hopeless):
    counters = Counters()
    events(counters)
    assert counters.hopeless is hopeless
    counters.accepted = 1
    assert not counters.hopeless


def test_board_says_why_the_container_is_not_ready():
    shared = SharedState(total_steps=3, phase="making rollouts")
    shared.counters.scored([1.0, 1.0])
    shared.counters.was_filtered("equal", 4)
    shared.counters.has_failed("raised", "ValueError: x")
    assert shared.unready() == (
        "no group accepted yet: making rollouts (1 groups made, 1 dropped, 0 refused, 1 failed); "
        "last failure: ValueError: x"
    )
    shared.counters.accepted = 1
    assert shared.unready() is None


def test_every_group_that_was_made_counts_sent_or_not() -> None:
    counters = Counters()
    counters.scored([1.0, 1.0])
    counters.was_filtered("equal", 10)
    for earned in ([0.0, 0.0], [1.0, 0.0], [0.9, 0.1]):
        counters.scored(earned)
    metrics = counters.take_metrics()
    mix = {name: value for name, value in metrics.items() if name.startswith("env/groups_all") or "mixed" in name}
    assert mix == {"env/groups_all_right": 0.25, "env/groups_all_wrong": 0.5, "env/groups_mixed": 0.25}
    assert [name for name in metrics if describe(name) is None] == []


def mixes(counters):
    metrics = counters.take_metrics()
    return [metrics.get(f"env/groups_{mix}") for mix in ("all_right", "all_wrong")]


def test_only_recent_groups_count_and_empty_ones_do_not_and_the_environment_says_what_is_right():
    counters = Counters()
    counters.scored([])
    assert mixes(counters) == [None, None]
    counters.scored([0.0])
    assert mixes(counters) == [0.0, 1.0]
    for _ in range(RECENT_GROUPS):
        counters.scored([0.5, 0.6], lambda reward: reward >= 0.5)
    assert mixes(counters) == [1.0, 0.0]


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
    counts.were_scored(MIN_ROLLOUTS - 5)
    for rollout in (SLOW, SLOW, BROKEN, SLOW):
        shared.counters.rollout_failed(rollout)
    assert shared.warnings == [], "too few to say"
    shared.counters.rollout_failed(SLOW)
    [warning] = shared.warnings
    assert warning == (
        "5 of the last 20 rollouts failed (4 took too long, 1 raised an error); the last one with TimeoutError: took "
        "longer than 10 s"
    )
    counts.were_scored(RECENT_ROLLOUTS)
    assert shared.warnings == []
    shared.grader_warnings = ("the grader pays",)
    assert shared.warnings == ["the grader pays"]


MIXED = {"tokens": [[1, 2], [1, 3]], "masks": [[-100, 2], [-100, 3]], "scores": [1.0, 0.0]}
SEVERAL = {
    "tokens": [[1, 2], [1, 3], [1, 4]],
    "masks": [[-100, 2], [1, 3], [-100, 4]],
    "scores": [1.0, 1.0, 0.0],
    "group_overrides": {"group_size": 3, "rollouts": [0, 0, 1]},
}
GROUPS = {
    "mixed scores": (MIXED, None),
    "equal scores": ({**MIXED, "scores": [1.0, 1.0]}, "equal"),
    "a sequence as long as the limit": ({**MIXED, "tokens": [[1, 2], [1] * 8]}, "too_long"),
    "equal and too long": ({**MIXED, "scores": [0.0, 0.0], "tokens": [[1] * 9, [1] * 9]}, "equal"),
    "three of two": ({**MIXED, "tokens": [[1], [2], [3]]}, "wrong_size"),
    "sequences of two rollouts": (SEVERAL, None),
    "no tokens": ({"scores": [1.0, 0.0]}, "wrong_size"),
    "no group at all": ("oops", "wrong_size"),
}


@pytest.mark.parametrize(("group", "reason"), GROUPS.values(), ids=GROUPS)
def test_reason(group, reason):
    assert filter_reason(group, 2, 8, drops_equal=True) == reason


def test_limits_that_are_off():
    assert filter_reason({**MIXED, "scores": [1.0, 1.0]}, 2, 8, drops_equal=False) is None
    assert filter_reason({**MIXED, "tokens": [[1] * 99, [1] * 99]}, 2, 0, drops_equal=True) is None


@pytest.mark.parametrize(
    ("group", "expected"),
    [(MIXED, [1.0, 0.0]), (SEVERAL, [1.0, 0.0]), ({}, []), (None, []), ({"scores": None}, [])],
)
def test_rewards_are_per_rollout(group, expected):
    assert rewards(group) == expected


@pytest.mark.parametrize(("group", "expected"), [(MIXED, 2), (SEVERAL, 4), ({}, 0), ("oops", 0)])
def test_generated_tokens(group, expected):
    assert generated_tokens(group) == expected
