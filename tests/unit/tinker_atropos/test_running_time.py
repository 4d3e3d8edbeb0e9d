"""Deadlines count the time in which a process ran: with clocks that the test turns, and in a stopped process."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from tinker_atropos.running_time import LONGEST_LOOK, LOOK_SECONDS, RunningTime


class Machine:
    """A clock that goes on, and a CPU of which the process gets nothing unless it is told."""

    def __init__(self) -> None:
        self.now, self.used = 100.0, 0.0
        self.running = RunningTime(lambda: self.now, lambda: self.used)
        self.running._watched = True  # the test looks, and no thread
        self.told: list[float] = []
        self.running.listeners.append(self.told.append)

    def passes(self, seconds: float, used: float = 0.0) -> None:
        self.now += seconds
        self.used += used

    def looks(self, times: int) -> None:
        for _ in range(times):
            self.passes(LOOK_SECONDS)
            self.running.look()


def test_while_a_process_runs_its_time_is_the_clocks() -> None:
    machine = Machine()
    begun = machine.running.seconds()
    machine.looks(20)
    machine.passes(0.25)
    assert machine.running.seconds() - begun == pytest.approx(10.25)
    assert not machine.told


@pytest.mark.parametrize("first_to_know", ["who asks", "who looks"])
def test_what_a_process_slept_through_counts_for_one_look(first_to_know) -> None:
    machine = Machine()
    machine.looks(4)
    begun = machine.running.seconds()
    machine.passes(7200)
    if first_to_know == "who asks":
        assert machine.running.seconds() - begun == LONGEST_LOOK
    machine.running.look()
    assert machine.running.seconds() - begun == LONGEST_LOOK
    machine.looks(2)
    assert machine.running.seconds() - begun == LONGEST_LOOK + 2 * LOOK_SECONDS
    assert machine.told == [7200 - LOOK_SECONDS]


def test_time_never_goes_back() -> None:
    machine, seen = Machine(), []
    for seconds in (0.1, 0.5, 3, 0.1, 125, 0.5):
        machine.passes(seconds)
        seen.append(machine.running.seconds())
        machine.running.look()
        seen.append(machine.running.seconds())
    assert seen == sorted(seen)


def test_a_process_that_computes_and_lets_nobody_look_is_not_told_to_be_frozen() -> None:
    machine = Machine()
    machine.passes(20, used=19.5)
    machine.running.look()
    assert not machine.told


def test_without_a_thread_that_looks_time_is_the_clocks() -> None:
    now = [5.0]
    running = RunningTime(lambda: now[0], lambda: 0.0)
    begun = running.seconds()
    now[0] += 1000
    assert running.seconds() - begun == 1000
    running._watched = True
    now[0] += 1000
    before = running.seconds()
    running.forked()
    now[0] += 1000
    assert running.seconds() - before == 1000


PROGRAM = """
import asyncio, json, time
from tinker_atropos.running_time import PROCESS, run, running_seconds

async def main():
    slept, told = [], asyncio.Event()
    loop = asyncio.get_running_loop()
    PROCESS.listeners.append(lambda seconds: loop.call_soon_threadsafe(lambda: (slept.append(seconds), told.set())))
    work = asyncio.get_running_loop().create_future()
    begun, ran = time.monotonic(), running_seconds()
    try:
        async with asyncio.timeout(8):
            print("ready", flush=True)
            await told.wait()
            missed = False
    except TimeoutError:
        missed = True
    print(json.dumps({"missed": missed, "slept": slept, "clock": time.monotonic() - begun,
                      "ran": running_seconds() - ran}), flush=True)

run(main())
"""


@pytest.mark.process
async def test_a_stopped_process_misses_no_deadline(tmp_path) -> None:
    """Nine seconds asleep, and a deadline of eight."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGSTOP)
    await asyncio.sleep(9)
    os.kill(process.pid, signal.SIGCONT)
    told = json.loads(await process.stdout.readline())
    await process.wait()
    assert not told["missed"]
    assert told["slept"][0] > 8
    assert told["clock"] - told["ran"] > 6
