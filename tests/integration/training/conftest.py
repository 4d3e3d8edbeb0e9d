"""The training half as plain processes: what `tinker-atropos` starts, on ports of their own."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import yaml
from tests import forking
from tests.conftest import TinkerServiceProcess
from tests.forking import ForkedProcess
from tests.ports import free_port

from rl_contract.trainer_messages import MAX_BYTES
from tinker_atropos.environments.bundled.digits import prompt, split

CLI = str(Path(sys.executable).with_name("tinker-atropos"))
END_SECONDS = 90.0

CONFIG: dict[str, Any] = {
    "env": {
        "total_steps": 3,
        "group_size": 4,
        "batch_size": 8,
        "tokenizer_name": "bundled",
        "max_token_length": 64,
        "max_batches_offpolicy": 1,
    },
    "openai": [{"model_name": "bundled"}],
    "tinker": {
        "lora_rank": 8,
        "learning_rate": 1e-3,
        "save_checkpoint_interval": 100,
        "backend_deadline_seconds": 30,
        "max_token_trainer_length": 512,
    },
}


async def eventually(what: str, condition: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
    """The first true value of a condition on another process, or a failure that says what it waited for."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        with contextlib.suppress(httpx.TransportError):
            if value := await condition():
                return value
        await asyncio.sleep(0.05)
    return pytest.fail(f"{what}: not within {seconds} s")


@dataclass
class Container:
    """One process of the training half, its log and its ops port."""

    process: ForkedProcess | asyncio.subprocess.Process
    log_file: Path
    ops_url: str

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    async def exit_code(self, seconds: float = END_SECONDS) -> int:
        try:
            return await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            pytest.fail(f"still running after {seconds} s:\n{self.log}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)


@dataclass
class TrainingHalf:
    """One run's folder, ports and processes."""

    folder: Path
    client: httpx.AsyncClient
    env_vars: dict[str, str]
    started: list[Container] = field(default_factory=list)
    real_starts: bool = False
    """Start the console script, and do not fork what has imported its libraries (tests/forking.py)."""

    @property
    def result_file(self) -> Path:
        return self.folder / "result.json"

    @property
    def result(self) -> dict[str, Any]:
        assert self.result_file.stat().st_size <= MAX_BYTES
        result: dict[str, Any] = json.loads(self.result_file.read_text())
        if items := result.get("items"):
            assert items["seen"] == items["trained"] + sum(items["dropped"].values()) + items["underWay"]
        return result

    def write_config(self, env: Mapping[str, Any] | None = None, tinker: Mapping[str, Any] | None = None) -> Path:
        path = self.folder / "config.yaml"
        sections = {"env": {**CONFIG["env"], **(env or {})}, "tinker": {**CONFIG["tinker"], **(tinker or {})}}
        path.write_text(yaml.safe_dump({**CONFIG, **sections}))
        return path

    async def start(self, *arguments: str, program: str | None = None, **env_vars: str) -> Container:
        """`program`: the console script of another Python's environment."""
        log_file = self.folder / f"{arguments[0]}-{len(self.started)}.log"
        ops_port = free_port()
        everything = {**os.environ, **self.env_vars, "RL_OPS_PORT": str(ops_port), **env_vars}
        process: ForkedProcess | asyncio.subprocess.Process
        if self.real_starts or program:
            with log_file.open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    program or CLI, *arguments, stdout=log, stderr=log, cwd=self.folder, env=everything
                )
        else:
            process = forking.start(arguments, everything, log_file, self.folder)
        container = Container(process, log_file, f"http://127.0.0.1:{ops_port}")
        self.started.append(container)
        return container

    async def start_api(self) -> Container:
        """An api with an empty journal, as every attempt's pod has."""
        api = await self.start("api", "--data", str(self.folder / f"api-{len(self.started)}"))
        await eventually("the api answers", lambda: self.client.get(self.env_vars["RL_API_URL"]))
        return api

    async def stop_api(self, api: Container) -> None:
        api.stop()
        await api.exit_code()

    async def start_trainer(self, config: Path, **env_vars: str) -> Container:
        return await self.start("trainer", "--config", str(config), RL_RESULT_FILE=str(self.result_file), **env_vars)

    async def ready_trainer(self, config: Path, **env_vars: str) -> Container:
        """A trainer with an api of its own."""
        await self.start_api()
        trainer = await self.start_trainer(config, **env_vars)
        await self.ready(trainer)
        return trainer

    async def ends_well(self, *containers: Container, seconds: float = END_SECONDS) -> None:
        for container in containers:
            assert await container.exit_code(seconds) == 0, "\n".join(each.log for each in containers)

    def has_succeeded(self, steps: int) -> bool:
        return (self.result["outcome"], self.result["stepsTrained"]) == ("succeeded", steps)

    async def ready(self, container: Container) -> None:
        async def answers() -> bool:
            assert container.process.returncode is None, container.log
            return (await self.client.get(f"{container.ops_url}/healthz")).status_code == 200

        await eventually("ready", answers)

    async def status(self, container: Container) -> dict[str, Any]:
        status: dict[str, Any] = (await self.client.get(f"{container.ops_url}/status")).json()
        return status

    async def reached(self, container: Container, step: int, *, saved: bool = False, seconds: float = 60.0) -> None:
        async def far_enough() -> bool:
            assert container.process.returncode is None, container.log
            status = await self.status(container)
            return status["step"] >= step and not (saved and status.get("checkpoint") is None)

        await eventually(f"step {step}", far_enough, seconds)

    async def says(self, container: Container, sentence: str) -> None:
        async def said() -> bool:
            assert container.process.returncode is None, container.log
            return sentence in container.log

        await eventually(f"the log says {sentence!r}", said)

    async def end(self) -> None:
        for container in reversed(self.started):
            if container.process.returncode is None:
                container.process.kill()
            await container.process.wait()
        await self.client.aclose()


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., Awaitable[Any]]:
    return eventually


@contextlib.asynccontextmanager
async def training_half(folder: Path, tinker_service: TinkerServiceProcess) -> AsyncIterator[TrainingHalf]:
    """One run's folder and ports; its processes end with the block."""
    env_vars = {
        "RL_API_URL": f"http://127.0.0.1:{free_port()}",
        "RL_INFERENCE_URL": f"http://127.0.0.1:{free_port()}",
        "RL_OPS_HOST": "127.0.0.1",
        "RL_RUN_UID": folder.name,
        **tinker_service.env_vars,
    }
    half = TrainingHalf(folder, httpx.AsyncClient(trust_env=False, timeout=60), env_vars)
    try:
        yield half
    finally:
        await half.end()


@pytest.fixture
async def half(process: None, tmp_path: Path, tinker_service: TinkerServiceProcess) -> AsyncIterator[TrainingHalf]:
    async with training_half(tmp_path, tinker_service) as half:
        yield half


class ScriptedEnvironment:
    """Speaks for an environment: samples groups, scores them by their first token, and renews its lease.

    Scores within a group differ: the first rollout gets 1, the others 0, so that every batch has a gradient. One that
    `lingers` does not end with the run, as if it evaluated: the test ends its lease.
    """

    def __init__(
        self, half: TrainingHalf, *, equal_scores: bool = False, with_logprobs: bool = True, lingers: bool = False
    ) -> None:
        self._half = half
        self._lingers = lingers
        self._equal_scores = equal_scores
        self._with_logprobs = with_logprobs
        self._tasks: list[asyncio.Task[None]] = []
        self.lease = {"state": "working", "reason": None, "ttl_seconds": 15}
        self.peer: dict[str, Any] = {}
        self.run_over = False
        self.groups = 0

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._heartbeat()), asyncio.create_task(self._serve())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def report(self, step: int, **metrics: float) -> None:
        """Like the runner's report of an evaluation; `__` stands for a slash."""
        named = {name.replace("__", "/"): value for name, value in metrics.items()}
        await self._api("POST", "/rl/metrics", {"source": "evaluation", "step": step, "metrics": named})

    async def _heartbeat(self) -> None:
        while True:
            answer = await self._api("PUT", "/rl/lease/environment", self.lease)
            self.peer, self.run_over = answer["peer"], answer["run_over"]
            if self.run_over and self.lease["state"] == "working" and not self._lingers:
                self.lease = {**self.lease, "state": "done"}
            await asyncio.sleep(0.1)

    async def _serve(self) -> None:
        size = CONFIG["env"]["group_size"]
        for item in split().training:
            text = f"<|im_start|>user\n{prompt(item)}<|im_end|>\n<|im_start|>assistant\n"
            body = {"text": text, "sampling_params": {"n": size, "max_new_tokens": 8}}
            response = await self._half.client.post(f"{self._half.env_vars['RL_INFERENCE_URL']}/generate", json=body)
            if response.status_code == 200:
                await self._send(text, response.json())
            while self.lease["state"] != "working" or await self._queue_is_full():
                await asyncio.sleep(0.02)

    async def _send(self, text: str, answers: list[dict[str, Any]]) -> None:
        size = answers[0]["meta_info"]["prompt_tokens"]
        prompt_ids = await self._prompt_ids(text)
        assert len(prompt_ids) == size
        outputs = [[entry[1] for entry in answer["meta_info"]["output_token_logprobs"]] for answer in answers]
        logprobs = [[entry[0] for entry in answer["meta_info"]["output_token_logprobs"]] for answer in answers]
        group = {
            "tokens": [prompt_ids + output for output in outputs],
            "masks": [[-100] * size + output for output in outputs],
            "scores": [1.0 if index == 0 or self._equal_scores else 0.0 for index in range(len(outputs))],
        }
        if self._with_logprobs:
            group["inference_logprobs"] = [[1.0] * size + row for row in logprobs]
        await self._api("POST", "/scored_data", group)
        self.groups += 1

    async def _prompt_ids(self, text: str) -> list[int]:
        from tokenizers import Tokenizer

        from rl_contract.bundled import bundled_model_folder

        return Tokenizer.from_file(str(bundled_model_folder() / "tokenizer.json")).encode(text).ids

    async def _queue_is_full(self) -> bool:
        return bool((await self._api("GET", "/status"))["queue_size"] >= 2)

    async def _api(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        response = await self._half.client.request(method, self._half.env_vars["RL_API_URL"] + path, json=body)
        response.raise_for_status()
        return response.json()


@pytest.fixture
def scripted_environment(half: TrainingHalf) -> Callable[..., ScriptedEnvironment]:
    """A factory of environments that work while their block runs."""

    def make(**options: bool) -> ScriptedEnvironment:
        return ScriptedEnvironment(half, **options)

    return make
