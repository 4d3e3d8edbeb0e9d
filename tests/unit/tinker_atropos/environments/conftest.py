"""A run around an environment, from processes and sockets: the real trajectory API, a trainer that does not learn, and
an inference server in sglang's shape that answers correctly with a given probability.
"""

import asyncio
import contextlib
import os
import random
import re
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests import forking
from tests.forking import ForkedProcess
from tests.ports import free_port
from tokenizers import Tokenizer

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.serving import bind, serve

CLI = (str(Path(sys.executable).with_name("tinker-atropos")),)
END_OF_TURN = 2
VOCABULARY = 512
TRAIN_SECONDS = 200
"""A few seconds, on a machine that is not busy."""

ENVIRONMENT_FILE = """\
import asyncio
import os
import sys
import textwrap
import time

from tinker_atropos.environments.bundled.sort_digits import SortDigits


class Mine(SortDigits):
    name = "mine"

"""


async def eventually(what: str, condition: Callable[[], Awaitable[bool] | bool], seconds: float = 60.0) -> None:
    """Wait for a condition on something outside the test, or fail with its description."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        met = condition()
        if met is True or (met is not False and await met):
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{what}: not within {seconds} s")


@dataclass
class Policy:
    """An inference server that sorts correctly with probability `share_right`, and remembers its requests."""

    share_right: float = 0.5
    requests: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[str] = field(default_factory=list)
    tokenizer: Tokenizer = field(
        default_factory=lambda: Tokenizer.from_file(str(bundled_model_folder() / "tokenizer.json"))
    )
    _random: random.Random = field(default_factory=lambda: random.Random(7))

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/generate", self._generate, methods=["POST"]),
                Route("/rl/evaluation", self._begin_evaluation, methods=["POST"]),
                Route("/rl/evaluation/{step:int}", self._end_evaluation, methods=["DELETE"]),
                Route("/v1/completions", self._ping, methods=["POST"]),
                Route("/v1/chat/completions", self._ping, methods=["POST"]),
            ]
        )

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        n = body["sampling_params"].get("n", 1)
        answers = [self._answer(body["input_ids"]) for _ in range(n)]
        return JSONResponse(answers if n > 1 else answers[0])

    async def _begin_evaluation(self, request: Request) -> Response:
        step = (await request.json())["due_step"]
        self.evaluations.append(f"begun {step}")
        return JSONResponse({"step": step})

    async def _end_evaluation(self, request: Request) -> Response:
        self.evaluations.append(f"ended {request.path_params['step']}")
        return JSONResponse({})

    def _answer(self, prompt_ids: list[int]) -> dict[str, Any]:
        digits = sorted(re.findall(r"sort (\d) (\d) (\d) (\d)", self.tokenizer.decode(prompt_ids))[-1])
        if self._random.random() >= self.share_right:
            digits[0], digits[-1] = "9", "0"
        ids = [*self.tokenizer.encode("".join(digits), add_special_tokens=False).ids, END_OF_TURN]
        return {
            "text": "".join(digits),
            "meta_info": {
                "prompt_tokens": len(prompt_ids),
                "completion_tokens": len(ids),
                "finish_reason": {"type": "stop"},
                "output_token_logprobs": [[-0.25, token, None] for token in ids],
            },
        }

    async def _ping(self, _request: Request) -> Response:
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        message = {"role": "assistant", "content": "hi"}
        choice = {"index": 0, "finish_reason": "stop", "text": "hi", "message": message, "logprobs": None}
        return JSONResponse(
            {"id": "x", "object": "text_completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        )


@dataclass
class Run:
    """A trajectory API with a trainer that takes batches and counts steps."""

    folder: Path
    api_url: str
    inference_url: str
    policy: Policy
    client: httpx.AsyncClient
    env_section: dict[str, Any]
    api: "Process"
    batches: list[list[dict[str, Any]]] = field(default_factory=list)
    processes: list["Process"] = field(default_factory=list)

    @property
    def env_vars(self) -> dict[str, str]:
        addresses = {"RL_API_URL": self.api_url, "RL_INFERENCE_URL": self.inference_url}
        return {**os.environ, **addresses}

    async def eventually(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        await eventually(what, condition)

    def write_config(self, **sections: Any) -> Path:
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump({"env": self.env_section, **sections}))
        return path

    async def start_environment(
        self,
        name_or_path: str | Path,
        *options: str,
        config: Path | None = None,
        wrapper: Sequence[str] | None = None,
        **variables: str,
    ) -> "Process":
        """Forked. With a `wrapper`, a command that runs the command after it, the console script is really started."""
        if config is None:
            config = self.folder / "config.yaml"
            if not config.exists():
                self.write_config()
        arguments = ("environment", str(name_or_path), "serve", "--config", str(config), *options)
        ops_port = free_port()
        env_vars = self.env_vars | {"RL_OPS_HOST": "127.0.0.1", "RL_OPS_PORT": str(ops_port)} | variables
        log = self.folder / f"environment-{len(self.processes)}.log"
        environment = await Process.start(arguments, env_vars, log, ops_port, wrapper)
        self.processes.append(environment)
        return environment

    async def served(self, name_or_path: str | Path, *options: str, **given: Any) -> "Process":
        """An environment that has served the whole run, and ended well."""
        environment = await self.start_environment(name_or_path, *options, **given)
        await self.train()
        assert await environment.ends() == 0, environment.output
        return environment

    async def failed(self, name_or_path: str | Path, *options: str, **given: Any) -> "Process":
        """An environment that has ended with an error while the trainer was waiting for it."""
        environment = await self.start_environment(name_or_path, *options, **given)
        training = asyncio.create_task(self.train())
        assert await environment.ends() == 1, environment.output
        training.cancel()
        return environment

    def write_environment(self, body: str) -> Path:
        """An environment file whose class is SortDigits with this body."""
        path = self.folder / "mine.py"
        path.write_text(ENVIRONMENT_FILE + textwrap.indent(textwrap.dedent(body), "    "))
        return path

    async def train(self, steps: int | None = None, start: int = 1) -> None:
        """Register, take batches, report each as a trained step, and renew the lease, like the trainer."""
        total = self.env_section["total_steps"]
        async with asyncio.timeout(TRAIN_SECONDS):
            if start == 1:
                await self.register()
            for step in range(start, (steps or total) + 1):
                self.batches.append(await self.next_batch())
                told = {"steps_trained": step, "training_done": step == total, "reason": None}
                await self.client.post("/rl/progress", json=told)

    async def restart_api(self) -> None:
        self.api.handle.terminate()
        assert await self.api.ends() == 0
        self.api = await start_api(self.folder, self.api_url)
        await self.api_answers()

    async def api_answers(self) -> None:
        async def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return (await self.client.get("/")).is_success
            return False

        await eventually("the trajectory API answers", answers)

    async def register(self, starting_step: int = 0) -> None:
        registration = {
            "wandb_group": "g",
            "wandb_project": "p",
            "batch_size": self.env_section["batch_size"],
            "max_token_len": self.env_section["max_token_length"],
            "checkpoint_dir": "",
            "save_checkpoint_interval": 0,
            "starting_step": starting_step,
            "num_steps": self.env_section["total_steps"],
            "vocabulary": VOCABULARY,
        }
        (await self.client.post("/register", json=registration)).raise_for_status()
        await self.beat()

    async def next_batch(self) -> list[dict[str, Any]]:
        while True:
            await self.beat()
            answer = (await self.client.get("/batch", params={"wait": 1})).raise_for_status()
            batch: list[dict[str, Any]] | None = answer.json()["batch"]
            if batch is not None:
                return batch

    async def beat(self, state: str = "working", reason: str | None = None) -> dict[str, Any]:
        lease = {"state": state, "reason": reason, "ttl_seconds": 30}
        kept: dict[str, Any] = (await self.client.put("/rl/lease/trainer", json=lease)).raise_for_status().json()
        return kept

    async def runner_metrics(self) -> dict[str, float]:
        """The runner's counts as last relayed."""
        metrics: dict[str, float] = {}
        for record in await self.records():
            metrics |= record["metrics"] if record["source"] == "runner" else {}
        return metrics

    async def records(self) -> list[dict[str, Any]]:
        answer = (await self.client.get("/rl/metrics", params={"after": 0})).raise_for_status()
        records: list[dict[str, Any]] = answer.json()["records"]
        return records


@dataclass
class Process:
    """A command of `tinker-atropos`, with its output in a file."""

    handle: asyncio.subprocess.Process | ForkedProcess
    log: Path
    ops_url: str

    @classmethod
    async def start(
        cls,
        arguments: tuple[str, ...],
        env_vars: dict[str, str],
        log: Path,
        ops_port: int,
        wrapper: Sequence[str] | None = None,
    ) -> "Process":
        handle: asyncio.subprocess.Process | ForkedProcess
        if wrapper is None:
            handle = forking.start(arguments, env_vars, log)
        else:
            with log.open("wb") as output:
                handle = await asyncio.create_subprocess_exec(
                    *wrapper, *CLI, *arguments, env=env_vars, stdout=output, stderr=asyncio.subprocess.STDOUT
                )
        return cls(handle, log, f"http://127.0.0.1:{ops_port}")

    async def ends(self, seconds: float = 80.0) -> int:
        try:
            return await asyncio.wait_for(self.handle.wait(), seconds)
        except TimeoutError:
            pytest.fail(f"the process did not end within {seconds} s; its output:\n{self.output}")

    async def says(self, text: str) -> None:
        await eventually(f"the process says {text!r}", lambda: text in self.output)

    async def ops(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            return await client.get(f"{self.ops_url}{path}")

    @property
    def output(self) -> str:
        return self.log.read_text()

    async def kill(self) -> None:
        if self.handle.returncode is None:
            self.handle.kill()
            await self.handle.wait()


async def start_api(folder: Path, api_url: str) -> Process:
    ops_port = free_port()
    env_vars = {**os.environ, "RL_API_URL": api_url, "RL_OPS_HOST": "127.0.0.1", "RL_OPS_PORT": str(ops_port)}
    return await Process.start(("api", "--data", str(folder / "api")), env_vars, folder / "api.log", ops_port)


@pytest.fixture
async def run(process: None, tmp_path: Path) -> AsyncIterator[Run]:
    """A small run: 3 steps of 2 groups of 4."""
    port, policy = free_port(), Policy()
    api_url = f"http://127.0.0.1:{port}"
    async with contextlib.AsyncExitStack() as stack:
        inference_port = await stack.enter_async_context(serve(policy.app(), bind("127.0.0.1", 0, "test")))
        api = await start_api(tmp_path, api_url)
        stack.push_async_callback(api.kill)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=api_url, timeout=60, trust_env=False))
        run = Run(
            folder=tmp_path,
            api=api,
            api_url=api_url,
            inference_url=f"http://127.0.0.1:{inference_port}",
            policy=policy,
            client=client,
            env_section={
                "total_steps": 3,
                "group_size": 4,
                "batch_size": 8,
                "tokenizer_name": "bundled",
                "max_token_length": 32,
                "max_batches_offpolicy": 1,
            },
        )

        await run.api_answers()
        yield run
        for started in (*run.processes, run.api):
            await started.kill()
