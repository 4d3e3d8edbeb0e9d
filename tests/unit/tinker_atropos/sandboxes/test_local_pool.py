"""Leases from a pool, whose sandboxes are stand-ins where their start does not matter."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.tinker_atropos.sandboxes.conftest import SECONDS, eventually, server_of, shell

from tinker_atropos.sandboxes.local_pool import LocalSandboxes
from tinker_atropos.sandboxes.local_sandbox import LocalSandbox
from tinker_atropos.sandboxes.sandbox import SandboxLimits, SandboxLostError
from tinker_atropos.sandboxes.sandbox_server.process_tree import _read


class FakeSandbox:
    """Starts at once, and does nothing."""

    def __init__(self) -> None:
        self.is_lost = self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class FakeStarts:
    """Of sandboxes: those that were made; `error` is raised instead, `gate` holds each start up."""

    def __init__(self) -> None:
        self.made: list[FakeSandbox] = []
        self.error: SandboxLostError | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0

    def __call__(self, _limits: SandboxLimits) -> Any:
        self.asked += 1
        assert self.gate.wait(SECONDS)
        if self.error is not None:
            raise self.error
        self.made.append(FakeSandbox())
        return self.made[-1]


@pytest.fixture
def starts() -> FakeStarts:
    return FakeStarts()


@pytest.fixture
def pool_of(starts: FakeStarts) -> Iterator[Callable[..., LocalSandboxes]]:
    pools: list[LocalSandboxes] = []

    def making(warm: int) -> LocalSandboxes:
        pools.append(LocalSandboxes(SandboxLimits(), warm, starts))
        return pools[-1]

    yield making
    starts.gate.set()
    for pool in pools:
        pool.close()


def test_sandboxes_are_started_before_they_are_leased(
    pool_of: Callable[..., LocalSandboxes], starts: FakeStarts
) -> None:
    pool = pool_of(2)
    eventually("two warm sandboxes", lambda: len(starts.made) == 2)
    eventually("ready", lambda: len(pool._ready) == 2)
    assert pool.lease() is starts.made[0]
    eventually("another one in its place", lambda: len(starts.made) == 3)


def test_a_lease_does_not_wait_for_others(pool_of: Callable[..., LocalSandboxes], starts: FakeStarts) -> None:
    pool = pool_of(0)
    assert pool.lease() is not pool.lease()
    assert starts.asked == 2


def test_one_that_was_killed_while_it_waited_is_not_leased(
    pool_of: Callable[..., LocalSandboxes], starts: FakeStarts
) -> None:
    pool = pool_of(2)
    eventually("ready", lambda: len(pool._ready) == 2)
    killed, alive = starts.made
    killed.is_lost = True
    assert pool.lease() is alive
    assert killed.is_closed


def test_a_start_that_fails_is_told_to_the_lease(pool_of: Callable[..., LocalSandboxes], starts: FakeStarts) -> None:
    starts.error = SandboxLostError("no more processes")
    pool = pool_of(1)
    eventually("a try", lambda: starts.asked)
    with pytest.raises(SandboxLostError, match="no more processes"):
        pool.lease()
    starts.error = None
    assert pool.lease()


def test_closing_ends_all_leased_or_not(pool_of: Callable[..., LocalSandboxes], starts: FakeStarts) -> None:
    pool = pool_of(1)
    pool.lease()
    eventually("ready", lambda: len(pool._ready) == 1)
    pool.close()
    assert all(sandbox.is_closed for sandbox in starts.made)
    with pytest.raises(SandboxLostError, match="the environment has ended"):
        pool.lease()


def test_one_that_starts_while_the_pool_is_closed_is_ended(
    pool_of: Callable[..., LocalSandboxes], starts: FakeStarts
) -> None:
    starts.gate.clear()
    pool = pool_of(1)
    eventually("a start", lambda: starts.asked)
    pool.close()
    starts.gate.set()
    eventually("ended", lambda: starts.made and starts.made[0].is_closed)


@pytest.mark.process
def test_many_at_once_have_each_their_own() -> None:
    """Sixteen rollouts write and read the same name; none is left in the end."""
    pool = LocalSandboxes(SandboxLimits(), warm=1)
    outcomes: list[str] = []

    def roll_out(number: int) -> None:
        sandbox = pool.lease()
        sandbox.write_file("name", str(number).encode())
        outcomes.append(shell(sandbox, "cat name").output)

    threads = [threading.Thread(target=roll_out, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    sandboxes: list[LocalSandbox] = list(pool._all)
    servers = [server_of(sandbox) for sandbox in sandboxes]
    pool.close()
    assert sorted(outcomes, key=int) == [str(number) for number in range(16)]
    assert not any(b"sandbox_server" in _read(f"/proc/{server}/cmdline") for server in servers)
