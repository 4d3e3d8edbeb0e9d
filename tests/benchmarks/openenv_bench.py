"""What an OpenEnv environment costs besides sampling: `python -m tests.benchmarks.openenv_bench`.

A server in a process of its own answers at once, and so does the policy, which is scripted: what is left is the
adapter: frames, the parsing of answers, the prompts of the bundled tokenizer, tokens and masks. CPU is this process's.
Prints a table; asserts nothing.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from tests.benchmarks.meter import Stopwatch, forget_peak, peak_mib, resident_mib
from tests.unit.tinker_atropos.environments.adapters.openenv.conftest import END_OF_TURN, ScriptedPolicy, scripted
from tests.unit.tinker_atropos.environments.adapters.openenv.guess_server import GuessServer, observation

from tinker_atropos.environments.rollout.conversation import Output
from tinker_atropos.environments.rollout.rollouts import Rollout

TURNS = 8
SEED = 100
"""Its secret is 0, which is never guessed: all episodes have TURNS steps."""

TEN_MEGABYTES = 10_000_000
CASES = {
    "short": (f"rollouts of {TURNS} steps", 30),
    "long": (f"rollouts of {TURNS} steps with 4,000 characters", 4_000),
    "huge": ("rollouts that get 10 MB frames", TEN_MEGABYTES),
}


async def serve(characters: int) -> None:
    """The server's process: prints its port. Observations have so many characters."""
    text = observation({"hint": "x" * characters})

    async def step(socket: Any, _frame: Any) -> None:
        await socket.send(text)

    async with GuessServer(max_sessions=10_000, on_step=step).listening() as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def opened(characters: int, at_once: int) -> AsyncIterator[ScriptedPolicy]:
    arguments = (sys.executable, "-m", "tests.benchmarks.openenv_bench", "--serve", str(characters))
    server = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert server.stdout
        url = f"http://127.0.0.1:{int(await server.stdout.readline())}"
        os.environ["RL_OPENENV"] = json.dumps({"url": url, "maxSessions": at_once})
        env = scripted(max_turns=TURNS, max_observation_chars=4_000)
        await env.setup()
        yield env
        await env.close()
    finally:
        server.kill()
        await server.wait()


async def measure(name: str, n: int) -> None:
    text, characters = CASES[name]
    async with opened(characters, n) as env:
        answer = env.tokenizer.encode('{"number": 5}', add_special_tokens=False)
        steps = 0

        async def sampled(_prompt: list[int], n: int, _split: str) -> list[Output]:
            nonlocal steps
            steps += n
            return [Output([*answer, END_OF_TURN], [-0.5] * (len(answer) + 1))] * n

        env.generate = sampled  # type: ignore[method-assign, assignment]
        await env.roll_out(SEED, 2, "train")  # warms up
        steps = 0
        pid = os.getpid()
        before = resident_mib(pid)
        forget_peak(pid)
        watch = Stopwatch(pid)
        outcomes = await env.roll_out(SEED, n, "train")
        used = watch.read()
    whole = sum(isinstance(outcome, Rollout) for outcome in outcomes)
    what = f"{n} {text}"
    print(
        f"{what:<58}{1000 * used.cpu / steps:>9.2f} ms{used.seconds:>8.2f} s{peak_mib(pid) - before:>8.0f} MiB"
        f"{whole:>6} of {n}",
        flush=True,
    )


async def bench() -> None:
    print(
        f"OpenEnv's adapter, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; goal: at most 5 ms of CPU per step"
    )
    print(f"{'':<58}{'CPU/step':>12}{'all':>10}{'added':>12}{'whole':>11}")
    for name, n in (("short", 1), ("short", 16), ("short", 256), ("long", 16), ("long", 256), ("huge", 256)):
        await measure(name, n)


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(int(sys.argv[2])))
    else:
        asyncio.run(bench())


if __name__ == "__main__":
    main()
