import pytest

from tinker_atropos.environments.runner.board import Board
from tinker_atropos.environments.runner.tally import HOPELESS_AFTER, Tally


def test_rewards_are_averaged_since_the_last_time():
    tally = Tally()
    tally.scored([1.0, 0.0])
    tally.scored([1.0, 1.0])
    tally.kept = 1
    assert tally.take_metrics() == {"env/reward_mean": 0.75, "env/groups_kept": 1, "env/groups_filtered": 1}
    assert tally.take_metrics() == {}
    tally.scored([0.5, "oops", None])
    assert tally.take_metrics()["env/reward_mean"] == 0.5


HOPELESS = {
    "too many failures": (lambda tally: [tally.failed("x") for _ in range(HOPELESS_AFTER)], True),
    "one less": (lambda tally: [tally.failed("x") for _ in range(HOPELESS_AFTER - 1)], False),
    "a group in between": (
        lambda tally: [tally.failed("x") if i != 10 else tally.collected() for i in range(HOPELESS_AFTER + 1)],
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
    board.tally.failed("ValueError: x")
    assert board.unready() == (
        "no group accepted yet: making rollouts (1 groups made, 1 dropped, 0 refused); last failure: ValueError: x"
    )
    board.tally.accepted = 1
    assert board.unready() is None
