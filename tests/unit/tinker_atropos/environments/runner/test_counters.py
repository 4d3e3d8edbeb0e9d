import pytest

from tinker_atropos.environments.runner.counters import HOPELESS_AFTER, STALLED_AFTER, Tally
from tinker_atropos.environments.runner.shared_state import Board


def test_rewards_are_averaged_since_the_last_time():
    tally = Tally()
    tally.scored([1.0, 0.0])
    tally.scored([1.0, 1.0])
    tally.kept = 1
    metrics = tally.take_metrics()
    assert (metrics["env/reward_mean"], metrics["env/groups_kept"]) == (0.75, 1)
    assert tally.take_metrics() == {}
    tally.scored([0.5, "oops", None, float("nan")])
    assert tally.take_metrics()["env/reward_mean"] == 0.5


def test_every_loss_is_counted_under_its_reason():
    tally = Tally()
    for reason, tokens in (("equal", 40), ("equal", 2), ("too_long", 100), ("wrong_size", 7), ("by_environment", 1)):
        tally.was_filtered(reason, tokens)
    for reason, tokens in (("raised", 3), ("overdue", 0), ("overdue", 0), ("empty", 0), ("undelivered", 0)):
        tally.has_failed(reason, "a sentence", tokens)
    tally.was_kept()
    metrics = tally.take_metrics()
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


def test_refusals_are_counted_by_kind_and_each_kind_is_news_once():
    tally = Tally()
    news = [tally.was_refused(1, f"422: scores.{at}: input should be finite") for at in range(3)]
    assert news == [True, False, False]
    assert tally.was_refused(2, "422: tokens is missing")
    assert tally.to_wire()["refusals"] == {"N: scores.N: input should be finite": 3, "N: tokens is missing": 2}
    for letter in "abcdefghijklmnopqrstuvwxyz":
        tally.was_refused(1, letter)
    assert len(tally.refused_by) == 21
    assert tally.refused_by["other"] == 8
    assert tally.refused == 5 + 26


def test_a_stall_because_all_groups_are_equal_is_said_as_that():
    board = Board(total_steps=3, phase="making rollouts")
    tally = board.tally
    for _ in range(STALLED_AFTER - 1):
        tally.was_filtered("equal", 4)
    assert tally.stalled is None
    tally.was_filtered("equal", 4)
    sentence = "the last 20 groups were dropped because all rewards within each were equal"
    assert tally.stalled is not None
    assert tally.stalled.startswith(sentence)
    assert sentence in board.unready()
    assert board.to_wire()["stalled"] == tally.stalled
    assert tally.take_metrics()["env/groups_equal_in_row"] == 20
    tally.was_kept()
    assert tally.stalled is None
    assert tally.take_metrics()["env/groups_equal_in_row"] == 0


HOPELESS = {
    "too many failures": (lambda tally: [tally.has_failed("raised", "x") for _ in range(HOPELESS_AFTER)], True),
    "one less": (lambda tally: [tally.has_failed("raised", "x") for _ in range(HOPELESS_AFTER - 1)], False),
    "a group in between": (
        lambda tally: [
            tally.has_failed("raised", "x") if i != 10 else tally.was_kept() for i in range(HOPELESS_AFTER + 1)
        ],
        False,
    ),
    "groups that are none": (
        lambda tally: [(tally.scored([]), tally.has_failed("raised", "x")) for _ in range(HOPELESS_AFTER)],
        True,
    ),
    "groups that the environment keeps to itself": (
        lambda tally: [tally.was_filtered("by_environment", 5) for _ in range(HOPELESS_AFTER + 1)],
        False,
    ),
    "too many refusals": (lambda tally: tally.was_refused(HOPELESS_AFTER, "422"), True),
}


@pytest.mark.parametrize(("events", "hopeless"), HOPELESS.values(), ids=HOPELESS)
def test_hopeless(events, hopeless):
    tally = Tally()
    events(tally)
    assert tally.hopeless is hopeless
    tally.accepted = 1
    assert not tally.hopeless


def test_board_says_why_the_container_is_not_ready():
    board = Board(total_steps=3, phase="making rollouts")
    board.tally.scored([1.0, 1.0])
    board.tally.was_filtered("equal", 4)
    board.tally.has_failed("raised", "ValueError: x")
    assert board.unready() == (
        "no group accepted yet: making rollouts (1 groups made, 1 dropped, 0 refused, 1 failed); "
        "last failure: ValueError: x"
    )
    board.tally.accepted = 1
    assert board.unready() is None
