"""What reasoning-gym's tasks cost beside sampling: `python -m tests.benchmarks.reasoning_gym_bench`.

Prints a table; asserts nothing. The policy is scripted, all else is real: the library, its generators and graders in
their processes. CPU is that of the environment's process and of its workers; the clock depends on the machine.

Imports stand in functions: the workers import this module, too, as they import the program that starts them in a run.
"""

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from types import MethodType
from typing import Any

GROUP_SIZE, GROUPS = 8, 64
AT_ONCE = 32
"""Groups at once: 256 rollouts."""

TASKS = ("chain_sum", "spell_backward", "countdown", "rush_hour", "knight_swap")
ROW = "{:<18} {:>12} {:>16} {:>16} {:>12}"


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="utf-8").split():
            yield int(child)
            yield from descendants(int(child))


def used() -> float:
    """CPU seconds of this process and of those that it started."""
    from tests.benchmarks.meter import cpu_seconds

    return sum(cpu_seconds(pid) for pid in (os.getpid(), *descendants(os.getpid())))


def private_mib() -> float:
    """Memory of this process and of those that it started; what they share counts once."""
    total = 0
    for pid in (os.getpid(), *descendants(os.getpid())):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


async def measure(task: str) -> str:
    from tests.unit.tinker_atropos.environments.scripted_environment import alone

    from tinker_atropos.environments.adapters.reasoning_gym.reasoning_gym_environment import environment_class

    made = environment_class(task)
    values = made.config_init()[0].model_dump() | {"group_size": GROUP_SIZE, "eval_items": 20, "curriculum": None}
    env = alone(made, **values)
    began = time.monotonic()
    try:
        await env.setup()
        first = await env.get_next_item()
        first_item = time.monotonic() - began
        items = [first, *[await env.get_next_item() for _ in range(GROUPS - 1)]]
        env.generate = MethodType(_answers, env)
        cpu, began = used(), time.monotonic()
        await _groups(env, items)
        each = (used() - cpu) / (GROUPS * GROUP_SIZE)
        seconds = time.monotonic() - began
        memory = private_mib()
    finally:
        await env.close()
    return ROW.format(task, f"{first_item:.1f} s", f"{1000 * each:.2f} ms", f"{seconds:.2f} s", f"{memory:.0f} MiB")


async def _groups(env: Any, items: list[Any]) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> None:
        async with free:
            await env.collect_trajectories(item)

    await asyncio.gather(*map(one, items))


async def _answers(_env: Any, _prompt: list[int], n: int, _split: str) -> list[Any]:
    from tests.unit.tinker_atropos.environments.scripted_environment import output

    return [output("<answer>12</answer>")] * n


def main() -> None:
    print(
        f"{GROUPS} groups of {GROUP_SIZE}, {AT_ONCE * GROUP_SIZE} rollouts at once (goal: own CPU <= 5 ms a rollout)\n"
    )
    print(ROW.format("task", "first item", "CPU a rollout", "all rollouts", "memory"))
    for task in TASKS:
        print(asyncio.run(measure(task)))
    print(f"\npeak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
