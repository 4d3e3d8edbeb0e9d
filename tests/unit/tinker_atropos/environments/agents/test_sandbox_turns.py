"""Rollouts that wait for sandboxes: in which order they get them, and what is known of the wait."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tinker_atropos.environments.agents.sandbox_turns import NO_PODS, PATIENCE_SECONDS, SandboxTurns, sandbox_source
from tinker_atropos.errors import ConfigError
from tinker_atropos.sandboxes.sandbox import SandboxLimits, SandboxLostError


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

    async def end(self, count: int) -> None:
        for _ in range(count):
            self._ended.release()
            await settled()

    async def end_all(self) -> None:
        await self.end(len(self._tasks))
        await asyncio.wait_for(asyncio.gather(*self._tasks), 60)


async def settled() -> None:
    """Nothing here waits for anything but turns of the event loop."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_place_is_for_the_held_out_ones_if_nobody_else_plays() -> None:
    """Neither those that came first nor those that are more get it."""
    played = Played(Sandboxes().turns(1))
    await played.begin(*["train"] * 3)
    await played.begin(*["eval"] * 2)
    await played.end_all()
    assert played.order == ["train", "eval", "eval", "train", "train"]


class Timeline:
    """Rollouts that play for so many ticks each."""

    def __init__(self, turns: SandboxTurns) -> None:
        self._turns, self._ticks = turns, asyncio.Condition()
        self._playing: Counter[str] = Counter()
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, count: int, split: str, ticks: int) -> None:
        self.tasks += [asyncio.create_task(self._play(split, ticks)) for _ in range(count)]

    async def _play(self, split: str, ticks: int) -> None:
        async with self._turns.turn(split):
            self._playing[split] += 1
            for _ in range(ticks):
                async with self._ticks:
                    await self._ticks.wait()
            self._playing[split] -= 1

    async def tick(self) -> tuple[int, int]:
        """How many rollouts of training and how many held-out ones play by then."""
        async with self._ticks:
            self._ticks.notify_all()
        await settled()
        return self._playing["train"], self._playing["eval"]


async def test_a_split_has_half_of_the_places_however_long_its_rollouts_are() -> None:
    timeline = Timeline(Sandboxes().turns(4))
    timeline.begin(12, "train", 10)
    await settled()
    timeline.begin(20, "eval", 1)
    await settled()
    seen = [await timeline.tick() for _ in range(30)]
    assert seen == [*[(4, 0)] * 9, *[(2, 2)] * 10, *[(4, 0)] * 10, (2, 0)]
    for _ in range(10):
        await timeline.tick()
    await asyncio.wait_for(asyncio.gather(*timeline.tasks), 60)


@pytest.mark.parametrize("has_its_place", [True, False])
async def test_one_that_is_canceled_as_it_gets_its_place_takes_none(has_its_place: bool) -> None:
    turns = Sandboxes().turns(1)

    async def play() -> None:
        async with turns.turn("train"):
            pass

    async with turns.turn("train"):
        waiting = asyncio.create_task(play())
        await settled()
        if not has_its_place:
            waiting.cancel()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(play(), 60)


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
    """For a moment they do whenever pods are replaced."""
    sandboxes, come = Sandboxes(), asyncio.Event()
    turns = sandboxes.turns(2)
    reserve = sandboxes.reserve

    async def late() -> Any:
        await come.wait()
        return await reserve()

    async def wait_for(seconds: float) -> bool:
        await settled()
        sandboxes.now += seconds
        return turns.all_wait

    monkeypatch.setattr(sandboxes, "reserve", late)
    played = Played(turns)
    assert not await wait_for(PATIENCE_SECONDS)
    await played.begin("train", "train", "train")
    assert not await wait_for(PATIENCE_SECONDS - 1)
    assert await wait_for(1)
    come.set()
    assert not await wait_for(PATIENCE_SECONDS)
    come.clear()
    await played.end(2)
    assert not await wait_for(PATIENCE_SECONDS - 1)
    assert await wait_for(1)
    come.set()
    await played.end_all()


@pytest.mark.parametrize(("split", "notes"), [("train", [{"agent/sandbox_wait": 3.0}]), ("eval", [])])
async def test_waits_of_training_are_noted(split: str, notes: list[dict[str, float]]) -> None:
    sandboxes = Sandboxes()
    played = Played(sandboxes.turns(1))
    await played.begin("eval", split)
    sandboxes.now += 3.0
    await played.end_all()
    assert sandboxes.notes == notes


LIMITS = SandboxLimits(memory_mb=64)
NOWHERE: dict[str, str] = {}
IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
WITH_PODS = {
    **IN_CLUSTER,
    "RL_SANDBOX_HOST": "sorting-sandboxes",
    "RL_SANDBOX_PORT": "8090",
    "RL_SANDBOX_SHARE": "3",
    "RL_RUN_UID": "uid",
    "RL_RUN_NAME": "sorting",
}


def told(make_pool: Any) -> tuple[Any, ...]:
    """What a pool would be made with, which is not made."""
    keywords = {**make_pool.keywords}
    while hasattr(make_pool, "func"):
        make_pool = make_pool.func
    return make_pool.__name__, keywords


@pytest.mark.parametrize("place", [None, "kubernetes"])
def test_the_runs_pods(place: Any) -> None:
    source = sandbox_source(place, LIMITS, WITH_PODS)
    assert source.capacity == 3
    assert source.make_pool.args == ("sorting-sandboxes", 8090, "uid", 3)
    assert told(source.make_pool) == ("PodSandboxes", {"run_name": "sorting"})


@pytest.mark.parametrize(
    ("place", "environ", "must_isolate"),
    [(None, NOWHERE, False), ("local", NOWHERE, False), (None, IN_CLUSTER, True), ("local", WITH_PODS, True)],
)
def test_this_machine(place: Any, environ: dict[str, str], must_isolate: bool) -> None:
    source = sandbox_source(place, LIMITS, environ)
    assert source.capacity is None
    assert told(source.make_pool)[0] == "LocalSandboxes"
    assert source.make_pool.args == (SandboxLimits(memory_mb=64, must_isolate=must_isolate),)
    assert (source.trial is not None) == must_isolate


@pytest.mark.parametrize("environ", [NOWHERE, IN_CLUSTER])
def test_pods_that_are_not_there(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        sandbox_source("kubernetes", LIMITS, environ)
    assert str(refused.value) == NO_PODS
