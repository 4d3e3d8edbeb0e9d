import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.environments.agents.rewards import Judge, clamped, verdict, weighted

FINITE = st.floats(-5, 5)


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.floats(0, 2), FINITE), max_size=6))
def test_weighted_rewards_stay_between_0_and_1(signals):
    rewards = weighted(signals)
    assert list(rewards) == list(signals)
    assert all(value >= -1e-9 for value in rewards.values())
    assert sum(rewards.values()) <= 1 + 1e-9


def test_the_guides_weights():
    assert weighted({"correct": (0.6, True), "tools": (0.2, 1.0), "efficiency": (0.2, 0.5)}) == pytest.approx(
        {"correct": 0.6, "tools": 0.2, "efficiency": 0.1}
    )


def test_nan_is_refused():
    with pytest.raises(ValueError, match="nan"):
        clamped(float("nan"))


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ('{"score": 0.25}', 0.25),
        ('First {"score": 1}. On second thought:\n```json\n{"why": "x", "score": 0}\n```', 0.0),
        ('{"score": "high"} {"score": 0.5} {not json}', 0.5),
    ],
)
def test_verdicts(answer, score):
    assert verdict(answer) == score


@pytest.mark.parametrize("answer", ["", "0.5", '{"score": true}', '{"score": null}', '{"grade": 1}'])
def test_no_verdict(answer):
    with pytest.raises(ValueError, match="has no score"):
        verdict(answer)


class ScriptedJudge:
    def __init__(self, *answers: str | Exception) -> None:
        self.answers, self.asked = list(answers), list[list[dict]]()

    async def __call__(self, messages: list[dict]) -> str:
        self.asked.append(messages)
        await asyncio.sleep(0)
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


async def test_nothing_is_judged_twice():
    """Not even at the same time."""
    model = ScriptedJudge('{"score": 0.75}', '{"score": 3}')
    judge = Judge(model)
    scores = await asyncio.gather(*(judge.score("a", "how good?", lambda: 0.0) for _ in range(3)))
    assert scores == [0.75] * 3
    assert model.asked == [[{"role": "user", "content": "how good?"}]]
    assert await judge.score("b", "how good?", lambda: 0.0) == 1.0
    assert judge.fallbacks == 0


async def test_a_judge_that_fails_is_replaced_by_the_heuristic():
    judge = Judge(ScriptedJudge(ConnectionError("down"), "no idea", '{"score": 1}'))
    assert await judge.score("a", "?", lambda: 0.5) == 0.5
    assert await judge.score("b", "?", lambda: 7.0) == 1.0
    assert judge.fallbacks == 2
    assert await judge.score("a", "?", lambda: 0.0) == 0.5
