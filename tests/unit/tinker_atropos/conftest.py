"""An inference server over real HTTP, with a scripted sampler."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.sampling import Floats, Ints, Sample, SamplingSettings, StopReason
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.errors import RunError
from tinker_atropos.serving import bind, serve
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, TokenSequence
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.inference.inference_routes import InferenceServer, inference_app
from tinker_atropos.trainer.inference.ledger import Ledger


class ScriptedSampler:
    """Answers every prompt with `outputs`, one after the other; remembers its requests."""

    def __init__(self, outputs: list[list[int]]) -> None:
        self.outputs = outputs
        self.asked: list[tuple[list[int], int, SamplingSettings]] = []
        self.error: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.stop_reason: StopReason | None = None  # None: decided by EOS
        self.cancelled = asyncio.Event()

    async def sample(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> list[Sample]:
        self.asked.append((prompt_T.tolist(), n, settings))
        if self.error is not None:
            raise self.error
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        outputs = [self.outputs[index % len(self.outputs)] for index in range(n)]
        return [
            Sample(
                np.array(ids),
                -0.1 * np.arange(1, len(ids) + 1, dtype=np.float64),
                self.stop_reason or ("stop" if ids[-1] == 2 else "length"),
            )
            for ids in outputs
        ]

    async def logprobs(self, tokens_T: Ints) -> Floats:
        raise AssertionError(f"an inference server scores nothing, but it asked for logprobs of {tokens_T.tolist()}")


class Inference:
    """The server's parts, its client, and what it reported as fatal."""

    def __init__(
        self, tokenizer: Tokenizer, sampler: ScriptedSampler, client: httpx.AsyncClient, **limits: Any
    ) -> None:
        self.tokenizer = tokenizer
        self.sampler = sampler
        self.client = client
        self.policy = CurrentPolicy()
        self.ledger = Ledger()
        self.failures: list[RunError] = []
        self.generator = Generator(self.policy, self.ledger, self.failures.append, **limits)

    def remembered(self, prompt: list[int], output: list[int]) -> TokenSequence:
        """What the ledger knows of a generation of these ids, with everything else unknown."""
        tokens_T = np.array([*prompt, *output], np.int64)
        unknown = TokenSequence(
            tokens_T,
            generated_T=np.arange(len(tokens_T)) >= len(prompt),
            logprobs_T=np.full(len(tokens_T), np.nan),
            policy_step_T=np.full(len(tokens_T), UNKNOWN_STEP),
            score=0.0,
        )
        return self.ledger.attribute(unknown).sequence


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer("bundled")


@pytest.fixture
def serve_inference(
    tokenizer: Tokenizer,
) -> Callable[..., AbstractAsyncContextManager[Inference]]:
    """Serve on a port that the kernel chose while the block runs."""

    @asynccontextmanager
    async def serving(policy_step: int | None = 7, **limits: Any) -> AsyncIterator[Inference]:
        sampler = ScriptedSampler([[*tokenizer.encode("1234").tolist(), 2]])
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            inference = Inference(tokenizer, sampler, client, **limits)
            if policy_step is not None:
                inference.policy.swap(Policy(policy_step, sampler))
            server = InferenceServer(
                inference.generator, chat_renderer(tokenizer, "bundled"), default_max_tokens=64, model="bundled"
            )
            async with serve(inference_app(server), bind("127.0.0.1", 0, "RL_INFERENCE_URL")) as port:
                client.base_url = httpx.URL(f"http://127.0.0.1:{port}")
                yield inference

    return serving


@pytest.fixture
async def inference(serve_inference: Callable[..., AbstractAsyncContextManager[Inference]]) -> AsyncIterator[Inference]:
    async with serve_inference() as running:
        yield running
