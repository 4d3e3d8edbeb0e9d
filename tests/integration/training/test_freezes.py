"""Processes of a run that do not run for a while: frozen, each and all of them."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

nightly = pytest.mark.nightly(
    "tinker-atropos/src/tinker_atropos/trainer", "tinker-atropos/src/tinker_atropos/trajectory_api"
)


def worker_of(pid: int) -> int:
    """The api's worker, which serves: its parent only holds the ports."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])


@contextlib.contextmanager
def frozen(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "whose",
    [
        ("trainer", "api", "environment"),
        *(pytest.param((each,), marks=nightly) for each in ("trainer", "environment", "api")),
    ],
    ids="+".join,
)
async def test_a_freeze_of_longer_than_a_lease_costs_no_step(half, whose) -> None:
    config = half.write_config(env={"total_steps": 6})
    api = await half.start_api()
    trainer = await half.start_trainer(config)
    environment = await half.start("environment", "sort_digits", "serve", "--config", str(config))
    await half.ready(trainer)
    await half.reached(trainer, 1)
    pids = {
        "trainer": trainer.process.pid,
        "environment": environment.process.pid,
        "api": worker_of(api.process.pid),
    }
    with frozen(*(pids[each] for each in whose)):
        await asyncio.sleep(18)  # a lease is 15 s long
    if "trainer" in whose:
        await half.says(trainer, "the trainer did not run for 1")
        status = await half.status(trainer)
        assert status["resumedAt"]
        assert any("short of CPU" in warning for warning in status["warnings"])
    await half.ends_well(trainer, environment)
    assert half.has_succeeded(6)
