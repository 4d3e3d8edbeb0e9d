"""The policy of a check: a sampler in the place of a model, behind the trainer's inference server.

Its answers to each prompt are, in turn, the environment's gold answer (where it knows one), its wrong answer, an empty
one, and random tokens: what a policy may come up with before it has learned. All of it follows from a seed. Random
tokens are as they are drawn: tokenizing their text again gives others, as it does with a real policy, which
environments that make tokens from text do not notice.

The server has a thread of its own: an environment that blocks the event loop while it waits for an answer, as with a
synchronous client, blocks no other process's loop in a run either.
"""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Final

import numpy as np
import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rl_contract.env_vars import RL_INFERENCE_URL
from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.openai_answers import first_stop
from tinker_atropos.chat.sampling import Floats, Ints, Sample, SamplingSettings
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.check.observations import ScriptedKind
from tinker_atropos.errors import RunError
from tinker_atropos.serving import bind, serve
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.inference.inference_routes import SEQUENCE_FULL, InferenceServer, inference_app
from tinker_atropos.trainer.inference.ledger import ID, Ledger, prefix_keys
from tinker_atropos.trainer.inference.ledger_file import GenerationRecord

MAX_RANDOM_TOKENS: Final = 24
MEAN_LOGPROB: Final = -0.7
GREEDY: Final = 0.01
"""Temperature, or top_p, up to which all mass is on one token."""

UNREADABLE: Final = "\ufffd"
"""Part of a character: a token of its own means nothing as text."""


class ScriptedSampler:
    """Called in the server's thread; `expect` in the environment's, between two items."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer, self._seed = tokenizer, seed
        self._texts: dict[ScriptedKind, Sequence[str]] = {}
        self._asked: Counter[int] = Counter()
        self._said: dict[tuple[int, bytes], ScriptedKind] = {}
        self._continued: dict[int, ScriptedKind] = {}

    def expect(self, gold: str | None, wrong: Sequence[str]) -> None:
        """The answers to the item that is rolled out next."""
        given: dict[ScriptedKind, Sequence[str]] = {"gold": () if gold is None else (gold,), "wrong": wrong}
        self._texts = {**{kind: texts for kind, texts in given.items() if texts}, "empty": ("",)}
        self._asked.clear()

    def kind_of(self, generation: GenerationRecord) -> ScriptedKind | None:
        return self._said.get((generation.prompt_key, generation.output))

    async def sample(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> list[Sample]:
        keys = prefix_keys(prompt_T)
        following = self._conversation(keys) if n == 1 else None
        return [self._answer(prompt_T, int(keys[-1]), settings, following) for _ in range(n)]

    async def logprobs(self, tokens_T: Ints) -> Floats:
        """Logprobs of a model that is never certain: what it calls certain when it samples was shaped (see
        SamplingProbe).
        """
        logprobs_T = np.full(len(tokens_T), 2 * MEAN_LOGPROB)
        logprobs_T[:1] = np.nan
        return logprobs_T

    def _conversation(self, keys: Ints) -> ScriptedKind | None:
        """The kind of the answer that a prompt goes on from: a conversation stays what it began as."""
        return next((self._continued[key] for key in reversed(keys.tolist()) if key in self._continued), None)

    def _answer(self, prompt_T: Ints, key: int, settings: SamplingSettings, following: ScriptedKind | None) -> Sample:
        number = self._asked[key]
        self._asked[key] += 1
        kinds: tuple[ScriptedKind, ...] = (*self._texts, "random")
        kind = following or kinds[number % len(kinds)]
        generator = np.random.default_rng([self._seed, key % 2**63, number])
        texts = self._texts.get(kind, ("",))
        text = texts[number // len(kinds) % len(texts)]
        tokens = self._random(generator) if kind == "random" else self._encoded(text)
        tokens, ended = self._stopped(tokens, settings)
        tokens_T = np.array(tokens[: settings.max_tokens], np.int64)
        self._said.setdefault((key, tokens_T.astype(ID).tobytes()), kind)
        self._continued.setdefault(int(prefix_keys(np.concatenate([prompt_T, tokens_T]))[-1]), kind)
        stop = ended and len(tokens) <= settings.max_tokens
        return Sample(tokens_T, _logprobs(generator, len(tokens_T), settings), "stop" if stop else "length")

    def _random(self, generator: np.random.Generator) -> list[int]:
        wanted, tokens = int(generator.integers(1, MAX_RANDOM_TOKENS + 1)), list[int]()
        while len(tokens) < wanted:
            drawn = generator.integers(0, self._tokenizer.vocabulary, wanted).tolist()
            tokens += [token for token in drawn if self._is_readable(token)]
        return tokens[:wanted]

    def _is_readable(self, token: int) -> bool:
        (text,) = self._tokenizer.decode_each(np.array([token]))
        return bool(text) and UNREADABLE not in text and token not in self._tokenizer.special_ids

    def _encoded(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).tolist()
        return tokens

    def _stopped(self, tokens: list[int], settings: SamplingSettings) -> tuple[list[int], bool]:
        """The tokens up to a stop, and it; whether there is one."""
        stops = settings.stop
        words = [stop for stop in stops or () if isinstance(stop, str)]
        if found := first_stop(self._tokenizer.decode(np.array(tokens, np.int64)), words):
            return self._encoded(self._tokenizer.decode(np.array(tokens, np.int64)).partition(found)[0] + found), True
        end = [self._tokenizer.eos_id] if stops is None or self._tokenizer.eos in words else [*(stops or ())][:1]
        ids = [each for stop in end if stop is not None for each in self._ids(stop)]
        return [*tokens, *ids], bool(ids)

    def _ids(self, stop: str | int) -> list[int]:
        return [stop] if isinstance(stop, int) else self._encoded(stop)


def _logprobs(generator: np.random.Generator, length: int, settings: SamplingSettings) -> Floats:
    """Logprobs of a backend that tells those of the distribution that it drew from: one token has all of a greedy
    one.
    """
    if settings.temperature <= GREEDY or settings.top_p <= GREEDY or settings.top_k == 1:
        return np.zeros(length)
    logprobs_T: Floats = MEAN_LOGPROB * generator.exponential(size=length)
    return logprobs_T


START_SECONDS: Final = 60.0
END_SECONDS: Final = 5.0
MAX_KINDS: Final = 20
"""Refusals that are kept: a message may quote what the client sent."""


class RequestLog:
    """An ASGI app that counts the requests of another one by route, and their refusals by message."""

    def __init__(self, app: ASGIApp, requests: Counter[str], refused: Counter[str]) -> None:
        self._app, self._requests, self._refused = app, requests, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, body = 0, b""

        async def watched(message: Message) -> None:
            nonlocal status, body
            status = message.get("status", status)
            if status >= 400:
                body += message.get("body", b"")
            await send(message)

        self._requests[scope["path"]] += 1
        await self._app(scope, receive, watched)
        message, code = _refusal(body)
        if status >= 400 and code != SEQUENCE_FULL:
            self._note(f"{scope['path']}: {status} {message}")

    def _note(self, refusal: str) -> None:
        if refusal in self._refused or len(self._refused) < MAX_KINDS:
            self._refused[refusal] += 1


class ScriptedPolicy:
    """The policy of step 0, its ledger, and where it is served."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.sampler = ScriptedSampler(tokenizer, seed)
        self.ledger, self.current = Ledger(), CurrentPolicy()
        self.current.swap(Policy(0, self.sampler), opened=True)
        self.generator = Generator(self.current, self.ledger, _raise)
        self.url = ""

    @contextlib.contextmanager
    def served(self, app: ASGIApp) -> Iterator[None]:
        """On a loopback port that the kernel chooses, while the block runs."""
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()
        thread = threading.Thread(target=_serve, args=(app, started), name="policy", daemon=True)
        thread.start()
        loop, ended, port = started.result(START_SECONDS)
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join(END_SECONDS)

    def app(self, tokenizer: Tokenizer, default_max_tokens: int, model: str) -> ASGIApp:
        renderer = chat_renderer(tokenizer, model)
        return inference_app(InferenceServer(self.generator, renderer, default_max_tokens, model))


def _serve(app: ASGIApp, started: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]]") -> None:
    async def serving() -> None:
        ended = asyncio.Event()
        async with serve(app, bind("127.0.0.1", 0, RL_INFERENCE_URL)) as port:
            started.set_result((asyncio.get_running_loop(), ended, port))
            await ended.wait()

    try:
        asyncio.run(serving())
    except Exception as error:  # raised where it is waited for
        if started.done():
            raise
        started.set_exception(error)


def _raise(error: RunError) -> None:
    """There is no backend that could fail, and no context that could overflow."""
    raise error


def _refusal(body: bytes) -> tuple[str, str | None]:
    """The message of a refusal, and what it is called, if it has a name."""
    try:
        error = orjson.loads(body)["error"]
        return str(error["message"]), error.get("code")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return body.decode(errors="replace")[:300], None
