"""Groups and evaluations of our base class when rollouts fail."""

import errno

import pytest
from tests.unit.tinker_atropos.environments.scripted_environment import Capitals, alone

from rl_contract.scored_group import PROMPT_MASK
from tinker_atropos.environments.base import REPLACEMENT_ROUNDS
from tinker_atropos.environments.rollout.failures import IncompleteGroupError
from tinker_atropos.environments.rollout.rollouts import TransportError
from tinker_atropos.errors import ConfigError

ERRORS = {
    "raised": (ZeroDivisionError("no"), "raised"),
    "a timeout": (TimeoutError("30 s"), "timeout"),
    "a lost server": (TransportError("gone"), "transport"),
    "a closed connection": (ConnectionResetError("reset"), "transport"),
}


def failing(error: Exception, *, on: str):
    class Failing(Capitals):
        answers = ("A", on, "B")

        def score(self, item, completion):
            if completion == on:
                raise error
            return super().score(item, completion)

    return Failing


@pytest.mark.parametrize(("error", "kind"), ERRORS.values(), ids=ERRORS)
async def test_a_failed_rollout_is_made_again_and_costs_nothing_else(error, kind):
    env = alone(failing(error, on="x"))
    await env.setup()
    group, backlog = await env.collect_trajectories("a")
    assert (len(group["tokens"]), backlog) == (4, [])
    assert sorted(group["scores"]) == [0, 0, 1, 1], "of A, B, A and B: each x was replaced"
    assert {failed.kind for failed in env.reported} == {kind}
    assert all(failed.tokens == 2 for failed in env.reported), "the letter and the end of the turn"
    sampled = sum(mask != PROMPT_MASK for row in group["masks"] for mask in row)
    lost = sum(failed.tokens for failed in env.reported)
    assert sampled + lost == 2 * env.asked, "every sampled token is accounted for"
    assert type(error).__name__ in env.reported[0].message
    assert "test_base.py" in env.reported[0].message, "the line of the author's own file"


async def test_if_all_fail_at_once_no_more_are_paid_for():
    env = alone(failing(ValueError("bad"), on="x"))
    env.answers = ("x",)
    await env.setup()
    with pytest.raises(IncompleteGroupError, match=r"^ValueError: bad \(test_base\.py, line \d+, in score\)$"):
        await env.collect_trajectories("a")
    assert env.asked == 4


async def test_a_group_that_never_becomes_whole_is_given_up():
    env = alone(failing(ValueError("bad"), on="x"))
    env.answers = ("A", "x", "x", "x", *["x"] * 3 * REPLACEMENT_ROUNDS)
    await env.setup()
    with pytest.raises(IncompleteGroupError, match="3 rollouts failed again, the last with ValueError: bad"):
        await env.collect_trajectories("a")
    assert env.asked == 4 + 3 * REPLACEMENT_ROUNDS


async def test_a_full_disk_fails_no_rollout():
    env = alone(failing(OSError(errno.ENOSPC, "No space left on device"), on="x"))
    await env.setup()
    with pytest.raises(OSError, match="No space left on device"):
        await env.collect_trajectories("a")
    assert env.reported == []


async def test_an_evaluation_is_of_the_rollouts_that_have_a_score():
    env = alone(failing(ValueError("bad"), on="x"))
    env.answers = ("C", "x", "D", "x")
    evaluation = await env.evaluate()
    assert (evaluation.correct, evaluation.n) == (2, 2)
    assert len(env.reported) == 2
    env.answers = ("x",)
    with pytest.raises(ValueError, match="at least one sample"):
        await env.evaluate()


def test_prompts_that_leave_no_room_are_refused_before_anything_is_sampled():
    env = alone(Capitals, max_token_length=64)
    env.check_config()
    env = alone(Capitals, max_token_length=5)
    with pytest.raises(ConfigError, match=r"env\.max_token_length is 5, and the prompts .* have \d+ tokens and more"):
        env.check_config()
