"""Rollouts that wait for sandboxes: in which order they get them, and what is said of the wait."""

import asyncio
import logging
from typing import Any

import pytest

from tinker_atropos.environments.agents.sandbox_turns import ENOUGH_ROLLOUTS, SandboxTurns
from tinker_atropos.sandboxes.sandbox import SandboxLostError


class Sandboxes:
    """A toolbox with any number of sandboxes, unless it `lacks` them; and a clock that only a test moves."""

    def __init__(self) -> None:
        self.lacks = False
        self.given = self.freed = 0
        self.now = 0.0
        self.notes: list[dict[str, float]] = []

    async def reserve(self) -> Any:
        if self.lacks:
            raise SandboxLostError("no sandbox was free")
        self.given += 1
        return f"sandbox {self.given}"

    def free(self, _reserved: Any) -> None:
        self.freed += 1

    def turns(self, places: int) -> SandboxTurns:
        toolbox: Any = self
        return SandboxTurns(toolbox, places, lambda figures: self.notes.append(dict(figures)), lambda: self.now)


class Played:
    """Rollouts that all wait for one place, each until `end`; and the order in which they began."""

    def __init__(self, turns: SandboxTurns) -> None:
        self.turns = turns
        self.order: list[str] = []
        self._ended = asyncio.Semaphore(0)
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, *splits: str) -> None:
        self._tasks += [asyncio.create_task(self._play(split)) for split in splits]
        await settled()

    async def _play(self, split: str) -> None:
        async with self.turns.turn(split):
            self.order.append(split)
            await self._ended.acquire()

    async def end_all(self) -> None:
        for _ in self._tasks:
            self._ended.release()
            await settled()
        await asyncio.wait_for(asyncio.gather(*self._tasks), 60)


async def settled() -> None:
    """Nothing here waits for anything but turns of the event loop."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_held_out_rollouts_and_those_of_training_take_turns() -> None:
    """Neither those that came first nor those that are more get all sandboxes."""
    played = Played(Sandboxes().turns(1))
    await played.begin(*["train"] * 5)
    await played.begin(*["eval"] * 2)
    await played.end_all()
    assert played.order == ["train", "train", "eval", "train", "eval", "train", "train"]


async def test_one_that_no_longer_waits_holds_up_nobody() -> None:
    sandboxes = Sandboxes()
    played = Played(sandboxes.turns(1))
    await played.begin("train", "train", "eval", "train")
    for task in played._tasks[1:3]:
        task.cancel()
    del played._tasks[1:3]
    await played.end_all()
    assert played.order == ["train", "train"]
    sandboxes.lacks = True
    for _ in range(2):  # the place of the first is free again
        with pytest.raises(SandboxLostError):
            async with played.turns.turn("eval"):
                pass
    assert (sandboxes.given, sandboxes.freed, played.turns.all_wait) == (2, 2, False)


async def test_whether_all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    sandboxes, come = Sandboxes(), asyncio.Event()
    turns = sandboxes.turns(2)
    reserve = sandboxes.reserve

    async def late() -> Any:
        await come.wait()
        return await reserve()

    monkeypatch.setattr(sandboxes, "reserve", late)
    played = Played(turns)
    assert not turns.all_wait
    await played.begin("train", "train", "train")
    assert turns.all_wait
    come.set()
    await settled()
    assert not turns.all_wait
    await played.end_all()


async def play(sandboxes: Sandboxes, turns: SandboxTurns, split: str, waited: float, played: float) -> None:
    """One rollout, on the clock of `sandboxes`, with nobody around."""
    reserve = sandboxes.reserve

    async def after_a_while() -> Any:
        sandboxes.now += waited
        return await reserve()

    sandboxes.reserve = after_a_while  # type: ignore[method-assign]
    async with turns.turn(split):
        sandboxes.now += played
    sandboxes.reserve = reserve  # type: ignore[method-assign]


@pytest.mark.parametrize(("waited", "warnings"), [(3.0, 1), (2.0, 0)])
async def test_waits_of_training_are_noted_and_warned_of_once_if_they_are_the_most(
    waited: float, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    sandboxes = Sandboxes()
    turns = sandboxes.turns(1)
    with caplog.at_level(logging.WARNING, "tinker_atropos"):
        await play(sandboxes, turns, "eval", 1000.0, 0.0)
        for _ in range(ENOUGH_ROLLOUTS - 1):
            await play(sandboxes, turns, "train", waited, 2.0)
        assert not caplog.records
        for _ in range(2):
            await play(sandboxes, turns, "train", waited, 2.0)
    assert sandboxes.notes == [{"agent/sandbox_wait": waited}] * (ENOUGH_ROLLOUTS + 1)
    assert len(caplog.records) == warnings
    if warnings:
        assert "longer for a sandbox (3.0 s on average) than they take (2.0 s): spec.sandbox.size" in caplog.text
