"""What a taskset of verifiers costs besides sampling: `PYTHONPATH=. V/bin/python -m tests.benchmarks.verifiers_bench`,
where V/bin/python is what RL_VERIFIERS_PYTHON names. In another Python it says so, and measures nothing.

A server in a process of its own answers requests in token ids at once: what is left is verifiers and the adapter.
CPU is this process's. Prints a table; asserts nothing.
"""

import asyncio
import importlib.util
import os
import sys
import time
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.benchmarks.meter import Stopwatch, forget_peak, peak_mib, resident_mib
from tests.tasksets import RL_TASKSETS

from rl_contract.bundled import resolve_tokenizer
from tinker_atropos.config.run_config import parse_config
from tinker_atropos.environments.rollout.rollouts import Rollout
from tinker_atropos.serving import bind, serve
from tinker_atropos.settings import Settings

END_OF_TURN = "<|im_end|>"
CASES = {
    "sort-digits-vf": ("of one turn", {}),
    "guess_number_vf": ("of 4 turns", {"max_turns": 4}),
    "ask_and_answer_vf": ("of two agents", {}),
}


async def answer_requests() -> None:
    """The server's process: prints its port."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_tokenizer("bundled"))
    tokens = tokenizer.encode("11" + END_OF_TURN, add_special_tokens=False)
    content = [{"token": f"token_id:{token}", "logprob": -0.5} for token in tokens]
    choice = {"token_ids": tokens, "finish_reason": "stop", "logprobs": {"content": content}}
    answer = orjson.dumps({"request_id": "r", "choices": [choice]})

    async def generate(_request: Request) -> Response:
        return Response(answer, media_type="application/json")

    async def models(_request: Request) -> Response:
        return Response(b'{"data": []}', media_type="application/json")

    routes = [Route("/inference/v1/generate", generate, methods=["POST"]), Route("/v1/models", models)]
    async with serve(Starlette(routes=routes), bind("127.0.0.1", 0, "RL_INFERENCE_URL")) as port:
        print(port, flush=True)
        await asyncio.Event().wait()


def built(name: str, url: str, fields: dict[str, Any]) -> Any:
    from tinker_atropos.environments.runner import atropos_patches
    from tinker_atropos.environments.runner.loading.environment_config import wired_to_run
    from tinker_atropos.environments.runner.loading.environment_files import locate_environment
    from tinker_atropos.environments.runner.loading.environment_loader import load_environment

    atropos_patches.list_token_ids()
    shared = {"total_steps": 2, "group_size": 8, "batch_size": 8, "tokenizer_name": "bundled", "max_token_length": 2048}
    run = parse_config({"env": {**shared, **fields}, "openai": [{"model_name": "bundled"}]})
    return load_environment(locate_environment(f"verifiers/{name}")).build(
        run, wired_to_run(run, Settings(inference_url=url))
    )


async def measure(name: str, url: str) -> None:
    text, fields = CASES[name]
    began = time.monotonic()
    env = built(name, url, fields)
    await env.setup()
    await env.collect_trajectories(env.training_items()[0])
    first_group = time.monotonic() - began
    pid = os.getpid()
    for n in (16, 256):
        before = resident_mib(pid)
        forget_peak(pid)
        watch = Stopwatch(pid)
        outcomes = await env.roll_out(env.training_items()[0], n, "train")
        used = watch.read()
        whole = sum(isinstance(outcome, Rollout) for outcome in outcomes)
        told = f"{first_group:.1f} s" if first_group else ""
        print(
            f"{f'{n} rollouts {text}':<38}{1000 * used.cpu / n:>9.1f} ms{used.seconds:>8.2f} s"
            f"{peak_mib(pid) - before:>8.0f} MiB{whole:>6} of {n:<5}{told:>13}",
            flush=True,
        )
        first_group = 0.0  # told once
    await env.close()


async def bench() -> None:
    os.environ["RL_TASKSETS"] = RL_TASKSETS
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.benchmarks.verifiers_bench", "--serve"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout
        url = f"http://127.0.0.1:{int(await server.stdout.readline())}"
        print(
            f"The adapter of verifiers, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; goal: at most 50 ms of "
            f"CPU per rollout"
        )
        print(f"{'':<38}{'CPU/rollout':>12}{'all':>10}{'added':>12}{'whole':>13}{'first group':>13}")
        for name in CASES:
            await measure(name, url)
    finally:
        server.kill()
        await server.wait()


def main() -> None:
    if importlib.util.find_spec("verifiers") is None:
        print("verifiers is not installed here: run this with the Python that RL_VERIFIERS_PYTHON names")
        return
    asyncio.run(answer_requests() if sys.argv[1:2] == ["--serve"] else bench())


if __name__ == "__main__":
    main()
