"""Whose sandbox is whose, and what waiting for one costs."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.tinker_atropos.environments.conftest import eventually

from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.environments.agents.toolbox import Toolbox, ToolFailedError
from tinker_atropos.sandboxes.sandbox import SandboxLostError, always

NOTHING = {"type": "object", "properties": {}}
SECONDS = 60.0


class ClosableSandbox:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class SlowPool:
    """Gives sandboxes once it is told to. `may_be_late`: it does not look whether they are still wanted."""

    def __init__(self, *, may_be_late: bool = False) -> None:
        self.leased: list[ClosableSandbox] = []
        self.given_back: list[ClosableSandbox] = []
        self.waiting = 0
        self.gate = threading.Event()
        self._may_be_late = may_be_late

    def lease(self, is_wanted: Callable[[], bool] = always) -> Any:
        self.waiting += 1
        while not self.gate.wait(0.01):
            if not self._may_be_late and not is_wanted():
                raise SandboxLostError("too late")
        self.leased.append(ClosableSandbox())
        return self.leased[-1]

    def give_back(self, sandbox: Any) -> None:
        self.given_back.append(sandbox)

    def close(self) -> None:
        self.gate.set()


@pytest.fixture
def box_of() -> Iterator[Callable[..., Toolbox]]:
    boxes: list[Toolbox] = []

    def making(pool: SlowPool, seconds: float = 60.0) -> Toolbox:
        boxes.append(Toolbox(lambda: pool, seconds, threads=4))
        return boxes[-1]

    yield making
    for box in boxes:
        box.close()


async def test_waiting_for_a_sandbox_is_not_a_part_of_the_call(box_of, monkeypatch):
    """It lasts at least as long as a call may."""
    monkeypatch.setattr("tinker_atropos.environments.agents.toolbox.GRACE_SECONDS", 0.0)
    pool = SlowPool()
    box = box_of(pool, seconds=0.5)

    async def hang() -> None:
        await asyncio.Event().wait()

    waiting = asyncio.create_task(box.call(Tool("quick", "", NOTHING, lambda _: "done", in_sandbox=True), "{}", "one"))
    await eventually("a lease", lambda: pool.waiting > 0)
    with pytest.raises(ToolFailedError, match=r"hang took longer than 0\.5 s"):
        await box.call(Tool("hang", "", NOTHING, hang), "{}", "another")
    pool.gate.set()
    assert await asyncio.wait_for(waiting, SECONDS) == "done"


async def test_calls_of_one_rollout_share_a_sandbox(box_of: Callable[..., Toolbox]) -> None:
    pool = SlowPool()
    box = box_of(pool)
    identity = Tool("identity", "", NOTHING, id, in_sandbox=True)
    calls = [asyncio.create_task(box.call(identity, "{}", "one")) for _ in range(3)]
    await eventually("a lease", lambda: pool.waiting > 0)
    pool.gate.set()
    assert len(set(await asyncio.gather(*calls))) == len(pool.leased) == 1
    assert await box.call(identity, "{}", "another") == str(id(pool.leased[1]))
    box.release("one")
    assert [sandbox.is_closed for sandbox in pool.leased] == [True, False]


async def test_a_rollout_that_is_over_waits_for_no_sandbox(box_of: Callable[..., Toolbox]) -> None:
    """Its end does not wait for the lease, and the lease not for a sandbox."""
    pool = SlowPool()
    box = box_of(pool)
    leasing = asyncio.create_task(asyncio.to_thread(box.sandbox, "one"))
    await eventually("a lease", lambda: pool.waiting > 0)
    box.release("one")
    with pytest.raises(SandboxLostError, match="too late"):
        await asyncio.wait_for(leasing, SECONDS)
    assert not box._leases


async def test_a_sandbox_that_comes_too_late_is_closed(box_of: Callable[..., Toolbox]) -> None:
    pool = SlowPool(may_be_late=True)
    box = box_of(pool)
    leasing = asyncio.create_task(asyncio.to_thread(box.sandbox, "one"))
    await eventually("a lease", lambda: pool.waiting > 0)
    box.release("one")
    pool.gate.set()
    with pytest.raises(SandboxLostError, match="the rollout was over before its sandbox was there"):
        await asyncio.wait_for(leasing, SECONDS)
    assert pool.leased[0].is_closed


async def test_a_reserved_sandbox_is_the_rollouts(box_of: Callable[..., Toolbox]) -> None:
    pool = SlowPool()
    box = box_of(pool)
    pool.gate.set()
    used, unused = await box.reserve(), await box.reserve()
    box.give("one", used)
    assert box.sandbox("one") is used.sandbox
    box.release("one")
    box.free(used)
    box.free(unused)
    assert (used.sandbox.is_closed, pool.given_back) == (True, [unused.sandbox])  # type: ignore[attr-defined]


async def test_what_is_left_of_a_rollout_gets_no_other_sandbox(box_of: Callable[..., Toolbox]) -> None:
    pool = SlowPool()
    box = box_of(pool)
    pool.gate.set()
    box.sandbox("one")
    box.release("one")
    box.sandbox("one")
    box.end("one")
    with pytest.raises(SandboxLostError, match="the rollout is over"):
        box.sandbox("one")
    assert [each.is_closed for each in pool.leased] == [True, True], "a grader may ask for an empty one"


async def test_a_reservation_that_nobody_waits_for_any_more_is_given_back(box_of: Callable[..., Toolbox]) -> None:
    pool = SlowPool(may_be_late=True)
    box = box_of(pool)
    reserving = asyncio.create_task(box.reserve())
    await eventually("a lease", lambda: pool.waiting > 0)
    reserving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reserving
    pool.gate.set()
    await eventually("given back", lambda: len(pool.given_back) == 1)
