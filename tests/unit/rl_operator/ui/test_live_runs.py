"""Who is told of which changes, and when nothing more comes."""

import asyncio
from collections.abc import Callable

import pytest

from rl_operator.operator_errors import ForbiddenError, OperatorError, TargetUnreachableError, UnauthenticatedError
from rl_operator.ui.live_runs import Change, Listener, LiveRuns, NoLongerLiveError, OpenStreams, Polls, Versions, pause

A, B = ("default", "a"), ("default", "b")
END_SECONDS = 60  # only ends a hang


class Script:
    """Answers in order, the last one again and again; errors are raised."""

    def __init__(self, *answers: Versions | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self) -> Versions:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def heard(listener: Listener) -> Change:
    return await asyncio.wait_for(listener.next(), END_SECONDS)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({A: "1"}, {A: "2"}, {A}),
        ({A: "1"}, {A: "1", B: "1"}, {B}),
        ({A: "1", B: "1"}, {B: "1"}, {A}),
        ({}, {A: "1", B: "2"}, {A, B}),
    ],
)
async def test_changes_are_told(before: Versions, after: Versions, changed: set[tuple[str, str]]) -> None:
    async with LiveRuns(Script(before, before, after), 0.001).changes() as listener:
        assert await heard(listener) == changed


async def test_a_target_that_does_not_answer_is_asked_again() -> None:
    away = TargetUnreachableError("away")
    async with LiveRuns(Script({A: "1"}, away, away, {A: "2"}), 0.001).changes() as listener:
        assert await heard(listener) == {A}


@pytest.mark.parametrize(
    "error", [ForbiddenError("no"), UnauthenticatedError("no")], ids=lambda each: type(each).__name__
)
async def test_whoever_may_not_list_is_told_so(error: OperatorError) -> None:
    live = LiveRuns(Script({A: "1"}, error), 0.001)
    async with live.changes() as one, live.changes() as other:
        for listener in (one, other):
            with pytest.raises(NoLongerLiveError, match="no"):
                await heard(listener)


async def test_a_failure_ends_the_streams_and_the_next_one_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    live = LiveRuns(Script(KeyError("uid"), {A: "1"}, {A: "2"}), 0.001)
    async with live.changes() as listener:
        with pytest.raises(NoLongerLiveError, match="its log says more"):
            await heard(listener)
    assert "can no longer be followed" in caplog.text
    async with live.changes() as listener:
        assert await heard(listener) == {A}


async def test_tabs_share_a_poll_that_ends_with_the_last_one() -> None:
    script = Script({A: "1"}, {A: "2"}, {A: "3"}, {A: "4"})
    live = LiveRuns(script, 0.001)
    async with live.changes() as one:
        async with live.changes() as other:
            assert await heard(one) == await heard(other) == {A}
        assert await heard(one) == {A}
    asked = script.asked
    assert asked <= 4  # two polls would have asked twice as often
    assert live._polling is None


async def test_the_polls_of_a_server_know_how_many_they_are() -> None:
    polls = Polls()
    one, other = (LiveRuns(Script({A: "1"}), 0.001, polls) for _ in range(2))
    async with one.changes(), one.changes():
        async with other.changes():
            await until(lambda: polls.running == 2)
        await until(lambda: polls.running == 1)
    await until(lambda: polls.running == 0)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(END_SECONDS):
        while not holds():
            await asyncio.sleep(0.001)


async def test_a_tab_that_does_not_read_is_told_everything_once() -> None:
    listener = Listener()
    for number in range(1_000):
        listener.tell(frozenset({("default", str(number % 3))}))
    assert await heard(listener) == {("default", "0"), ("default", "1"), ("default", "2")}
    listener.tell(frozenset({A}))
    assert await heard(listener) == {A}


async def test_a_server_that_ends_ends_its_streams() -> None:
    streams, staying, left = OpenStreams(), Listener(), Listener()
    with streams.opened(staying):
        with streams.opened(left):
            pass
        streams.end()
        with pytest.raises(NoLongerLiveError, match=r"^$"):
            await heard(staying)
    left.tell(frozenset({A}))
    assert await heard(left) == {A}


@pytest.mark.parametrize(
    ("taken", "seconds"),
    [(0.001, 1.0), (0.25, 1.0), (0.5, 2.0), (30.0, 20.0)],
    ids=["cheap", "a quarter", "slow", "very slow"],
)
def test_a_slow_target_is_asked_less_often(taken: float, seconds: float) -> None:
    assert pause(1.0, taken) == seconds
