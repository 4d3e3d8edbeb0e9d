"""A run under random faults: every request on every link may get a wrong answer, be dropped, or held; every process may
be killed. This module does the work of kubelet and operator: the api is restarted on its folder, and a dead trainer or
environment causes a new attempt with an empty folder.
"""

import asyncio
import contextlib
import os
import random
import re
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
from tests.integration.training.conftest import Container, TrainingHalf, eventually
from tests.integration.training.faults import Fault, FaultProxy, Kind

STEPS = 5
PASSING: Sequence[Kind] = ("answer", "drop_before", "drop_after", "delay")
"""Faults of a link that are nobody's decision; to `refuse` is a backend's, of what it took in hand."""

MAX_ATTEMPTS = 8
ATTEMPT_SECONDS = 120.0
LINGER_SECONDS = 30.0

ENV = {
    "total_steps": STEPS,
    "group_size": 4,
    "batch_size": 16,
    "max_token_length": 32,
    "max_batches_offpolicy": 2,
    "steps_per_eval": 2,
    "eval_items": 8,
    "eval_samples": 1,
}
TINKER = {"save_checkpoint_interval": 2, "keep_checkpoints": 2, "backend_deadline_seconds": 20, "learning_rate": 1e-3}

Link = Literal["environment-api", "environment-inference", "trainer-api", "trainer-backend"]
Victim = Literal["api worker", "api", "trainer", "environment", "trainer by SIGTERM"]

REQUESTS: dict[Link, tuple[str, ...]] = {
    "environment-api": ("POST /scored_data", "GET /status-env", "PUT /rl/lease", "POST /rl/metrics",
                        "POST /register-env"),
    "environment-inference": ("POST /generate",),
    "trainer-api": ("GET /batch", "POST /rl/progress", "POST /register$", "PUT /rl/lease", "GET /rl/metrics"),
    "trainer-backend": ("POST /api/v1/forward_backward", "POST /api/v1/optim_step", "POST /api/v1/asample",
                        "POST /api/v1/retrieve_future", "POST /api/v1/save_weights", "GET /api/v1/checkpoints"),
}  # fmt: skip
STATUSES: dict[Link, tuple[int, ...]] = {
    "environment-api": (500, 503),
    "environment-inference": (500, 503),
    "trainer-api": (500, 503),
    "trainer-backend": (500, 503, 429, 408, 422),
}
VICTIMS: dict[Victim, float] = {
    "api worker": 0.5,
    "api": 0.2,
    "trainer": 0.12,
    "environment": 0.12,
    "trainer by SIGTERM": 0.06,
}
"""Weights: what makes a new attempt costs a test seconds."""


@dataclass(frozen=True)
class Kill:
    """`victim` is killed when the link has carried this many requests."""

    victim: Victim
    link: Link
    after: int


@dataclass(frozen=True)
class Schedule:
    seed: int
    faults: dict[Link, list[Fault]]
    kills: tuple[Kill, ...]

    @classmethod
    def random(cls, seed: int) -> "Schedule":
        choose = random.Random(seed)
        faults: dict[Link, list[Fault]] = {link: [] for link in REQUESTS}
        for _ in range(choose.randint(3, 8)):
            link = choose.choice(list(REQUESTS))
            faults[link].append(_random_fault(choose, link))
        kills = tuple(
            Kill(choose.choices(list(VICTIMS), list(VICTIMS.values()))[0], choose.choice(list(REQUESTS)[:3]), after)
            for after in sorted(choose.sample(range(5, 120), choose.randint(0, 3)))
        )
        return cls(seed, faults, kills)

    def __str__(self) -> str:
        faults = [f"{link}: {fault}" for link, faults in self.faults.items() for fault in faults]
        return "\n".join([f"seed {self.seed}", *faults, *map(str, self.kills)])


def _random_fault(choose: random.Random, link: Link) -> Fault:
    kind: Kind = choose.choice(PASSING)
    return Fault(
        kind,
        choose.choice(REQUESTS[link]),
        skip=choose.randint(0, 12),
        times=choose.randint(1, 3),
        status=choose.choice(STATUSES[link]),
        seconds=choose.uniform(0.1, 2.0),
    )


@dataclass
class Ended:
    """How a run ended, with what the last attempt left behind.

    `began_at` is the step it continued from, `answers_lost` bounds the samples whose answers no client received.
    `runner_ended`: cleanly, so that its last counts are in `runner`; it may be killed after the last step.
    """

    result: dict[str, Any]
    books: dict[str, Any]
    runner: dict[str, float]
    began_at: int
    answers_lost: int
    runner_ended: bool
    attempts: int
    logs: str


@dataclass
class Chaos:
    """One run under one schedule."""

    half: TrainingHalf
    schedule: Schedule
    proxies: dict[Link, FaultProxy] = field(default_factory=dict)
    kills_left: list[Kill] = field(default_factory=list)

    async def run(self) -> Ended:
        """To the end, in as many attempts as necessary."""
        self.kills_left = list(self.schedule.kills)
        config = self.half.write_config(env=ENV, tinker=TINKER)
        urls = self.half.env_vars
        upstreams: dict[Link, str] = {
            "environment-api": urls["RL_API_URL"],
            "environment-inference": urls["RL_INFERENCE_URL"],
            "trainer-api": urls["RL_API_URL"],
            "trainer-backend": urls["TINKER_BASE_URL"],
        }
        async with contextlib.AsyncExitStack() as stack:
            for link, upstream in upstreams.items():
                proxy = FaultProxy(upstream, faults=self.schedule.faults[link])
                self.proxies[link] = await stack.enter_async_context(proxy.running())
            for attempt in range(1, MAX_ATTEMPTS + 1):
                ended = await self._attempt(attempt, config)
                if ended.result["outcome"] == "succeeded":
                    return ended
        raise AssertionError(f"{MAX_ATTEMPTS} attempts did not do\n{self.schedule}\n{ended.result}\n{ended.logs}")

    async def _attempt(self, attempt: int, config: Path) -> Ended:
        self.half.result_file.unlink(missing_ok=True)
        folder = self.half.folder / f"attempt-{attempt}"
        async with self._api(folder) as ops_of_api:
            trainer = await self.half.start_trainer(
                config,
                RL_ATTEMPT=str(attempt),
                RL_API_URL=self.proxies["trainer-api"].url,
                TINKER_BASE_URL=self.proxies["trainer-backend"].url,
            )
            environment = await self.half.start(
                "environment", "sort_digits", "serve", "--config", str(config),
                RL_API_URL=self.proxies["environment-api"].url,
                RL_INFERENCE_URL=self.proxies["environment-inference"].url,
            )  # fmt: skip
            killing = asyncio.create_task(self._kill(trainer, environment, ops_of_api))
            try:
                await trainer.exit_code(ATTEMPT_SECONDS)
                await self._end(environment)
            finally:
                killing.cancel()
                await asyncio.gather(killing, return_exceptions=True)
            books = await self._ask_api("/rl/books")
            records = await self._ask_api("/rl/metrics?after=0")
        logs = "\n".join(f"--- {part.log_file.name}\n{part.log}" for part in (trainer, environment))
        runner = {name: value for record in records["records"] for name, value in record["metrics"].items()}
        result = self.half.result if self.half.result_file.exists() else {"outcome": "none"}
        begun = re.search(r"ready: training run \S+, step (\d+)", trainer.log)
        return Ended(
            result=result,
            books=books,
            runner=runner,
            began_at=int(begun[1]) if begun else 0,
            answers_lost=sum(f.hits for f in self.schedule.faults["environment-inference"] if f.kind == "drop_after"),
            runner_ended=environment.process.returncode == 0,
            attempts=attempt,
            logs=logs,
        )

    async def _ask_api(self, path: str) -> dict[str, Any]:
        """It may have been killed a moment ago."""
        url = f"{self.half.env_vars['RL_API_URL']}{path}"
        answer: httpx.Response = await eventually("the api answers", lambda: self.half.client.get(url))
        body: dict[str, Any] = answer.raise_for_status().json()
        return body

    async def _end(self, environment: Container) -> None:
        """It notices by itself that the trainer is gone, unless the trainer died before its first heartbeat: then the
        operator deletes the pod.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(environment.process.wait(), LINGER_SECONDS)
        _stop(environment, signal.SIGTERM)
        await environment.exit_code(ATTEMPT_SECONDS)

    @contextlib.asynccontextmanager
    async def _api(self, folder: Path) -> AsyncIterator[list[Container]]:
        """The api, restarted whenever it is gone, as the kubelet does with a sidecar. Yields its newest process."""
        newest: list[Container] = []

        async def start() -> None:
            newest[:] = [await self.half.start("api", "--data", str(folder))]
            await eventually("the api answers", lambda: self.half.client.get(self.half.env_vars["RL_API_URL"]))

        async def keep() -> None:
            while True:
                await newest[0].process.wait()
                await start()

        await start()
        keeping = asyncio.create_task(keep())
        try:
            yield newest
        finally:
            await eventually("the api answers", lambda: self.half.client.get(self.half.env_vars["RL_API_URL"]))
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            newest[0].stop()
            await newest[0].exit_code()

    async def _kill(self, trainer: Container, environment: Container, api: list[Container]) -> None:
        """Each kill once, at its moment. A new attempt continues with the remaining ones."""
        while self.kills_left:
            kill = self.kills_left[0]
            if self.proxies[kill.link].seen.total() >= kill.after:
                self.kills_left.pop(0)
                match kill.victim:
                    case "api worker":
                        with contextlib.suppress(ProcessLookupError):
                            os.kill((await self.half.status(api[0]))["worker"]["pid"], signal.SIGKILL)
                    case "api":
                        _stop(api[0], signal.SIGKILL)
                    case "trainer":
                        _stop(trainer, signal.SIGKILL)
                    case "trainer by SIGTERM":
                        _stop(trainer, signal.SIGTERM)
                    case "environment":
                        _stop(environment, signal.SIGKILL)
            await asyncio.sleep(0.02)


def _stop(container: Container, number: int) -> None:
    if container.process.returncode is None:
        container.stop(number)
