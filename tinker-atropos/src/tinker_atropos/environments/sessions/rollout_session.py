"""One rollout as programs see it: a base URL and a key, until it ends; and what it sampled, turn by turn.

A program sends its whole history as text with each request. A prompt that extends, as text, what was sampled before
continues with the very tokens: they are never decoded and encoded again. One that does not is tokenized as a whole, and
begins another sequence of the rollout. So every sampled token is trained once, where it was sampled, and is context
everywhere else.

A program sends an answer back as it understood it: with calls as JSON, without special tokens. What the policy wrote
cannot be rebuilt from that, so that it is remembered. A message that says anything else is not the policy's.

All rollouts of this process have one endpoint (`SessionServer`): a request's key tells which of them it belongs to.
"""

import asyncio
import contextvars
import json
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request

from tinker_atropos.chat.chat_endpoint import Endpoint
from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.openai_answers import answer_chat
from tinker_atropos.chat.openai_requests import ChatRequest
from tinker_atropos.chat.request_handling import RefusedRequestError, Told
from tinker_atropos.chat.sampling import (
    ContextOverflowError,
    GeneratedSamples,
    Ints,
    Purpose,
    Sample,
    SamplingSettings,
    UnavailableError,
)
from tinker_atropos.chat.tokenizer import ChatError
from tinker_atropos.environments.rollout.conversation import Output, SampledSequence
from tinker_atropos.serving import bind, serve


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer. `text` is that of the prompt and the answer together, with special tokens."""

    prompt: list[int]
    output: Output
    text: str


Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class SentMessages:
    _written: dict[Key, str] = field(default_factory=dict)

    def add(self, message: Mapping[str, Any], written: str) -> None:
        """The last one counts, where several were sent alike."""
        self._written[_key(message)] = written

    def as_written(self, messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        """The messages, with the policy's in its own words."""
        return [self._restored(message) for message in messages]

    def _restored(self, message: Mapping[str, object]) -> dict[str, object]:
        if message.get("role") != "assistant":
            return dict(message)
        try:
            written = self._written.get(_key(message))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # refused where chats are rendered
            written = None
        return dict(message) if written is None else {"role": "assistant", "content": written}


def _key(message: Mapping[str, Any]) -> Key:
    """Equal for what says the same: programs write JSON in ways of their own, and send a text in parts."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return content or "", tuple((call["name"], _canonical(call["arguments"])) for call in calls)


def _canonical(arguments: Any) -> str:
    return json.dumps(json.loads(arguments or "{}") if isinstance(arguments, str) else arguments, sort_keys=True)


Sampling = Callable[[list[int], int, SamplingSettings], Coroutine[Any, Any, list[Sample]]]
"""Samples n answers to a prompt for this rollout's purpose."""

OVER = "the session of this key is over: the rollout has ended"


class RolloutSession:
    """The endpoint's caller that one rollout is. `max_length` bounds prompt and answer together, in tokens.

    `unmatched` counts answers whose prompt has an assistant's message and yet continues nothing that was sampled: a
    program that shortens its history, or changes an answer, begins another sequence. `split` is `train` or `eval`;
    `messages` is the conversation as whoever played it wants it to be read.
    """

    def __init__(
        self, base_url: str, renderer: ChatRenderer, sample: Sampling, max_length: int, split: str = "train"
    ) -> None:
        self.base_url, self.split = base_url, split
        self.api_key = f"rl-{secrets.token_urlsafe(24)}"
        self.is_over = False
        self.unmatched = 0
        self.overflowed = False
        self.messages: Sequence[dict[str, object]] = ()
        self.renderer, self._sample, self._max_length = renderer, sample, max_length
        self._context = contextvars.copy_context()  # tells which work of the environment this is
        self._turns: list[Turn] = []
        self._sent = SentMessages()
        self._asked: dict[bytes, tuple[str, str]] = {}  # by the prompt: its text, and how the answer begins
        self._running: set[asyncio.Task[list[Sample]]] = set()

    @property
    def env_vars(self) -> dict[str, str]:
        """What OpenAI's and Anthropic's clients look for."""
        root = self.base_url.removesuffix("/v1")
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": root,
            "ANTHROPIC_API_KEY": self.api_key,
        }

    @property
    def turns(self) -> int:
        return len(self._turns)

    @property
    def last_output(self) -> Output:
        """Raises IndexError if nothing was sampled yet."""
        return self._turns[-1].output

    @property
    def sampled_tokens(self) -> int:
        return sum(len(turn.output.tokens) for turn in self._turns)

    def sequences(self) -> list[SampledSequence]:
        """What is trained of it. A turn continues the longest sequence that its prompt begins with, or begins one of
        its own.
        """
        sequences: list[SampledSequence] = []
        for turn in self._turns:
            fitting = [at for at, each in enumerate(sequences) if turn.prompt[: len(each.tokens)] == each.tokens]
            if fitting:
                longest = max(fitting, key=lambda at: len(sequences[at].tokens))
                sequences[longest] = sequences[longest].continued(turn.prompt, turn.output)
            else:
                sequences.append(SampledSequence.begun(turn.prompt, turn.output))
        return sequences

    async def chat(self, body: ChatRequest) -> dict[str, object]:
        """A `chat.completion`, for a rollout that is played in this process. Raises as `generate` and ChatError."""
        return await answer_chat(self, body, self.renderer, self._max_length)

    def end(self) -> None:
        """From now on the key opens nothing. Answers that are still being sampled are not wanted any more."""
        self.is_over = True
        for task in self._running:
            task.cancel()

    # What the endpoint asks of its caller.

    @property
    def source(self) -> "RolloutSession":
        return self

    @property
    def context_length(self) -> int:
        return self._max_length

    def unavailable(self) -> str | None:
        return OVER if self.is_over else None

    def chat_prompt(self, body: ChatRequest, opening: str) -> Ints:
        text, is_continued = self._chat_text(body)
        self.unmatched += not is_continued and any(message.get("role") == "assistant" for message in body.messages)
        ids = np.array(self._prompt_ids(text + opening), np.int64)
        self._asked[ids.tobytes()] = (text + opening, opening)
        return ids

    def _chat_text(self, body: ChatRequest) -> tuple[str, bool]:
        """The prompt, with the policy's answers as it wrote them if it continues them so; else as they were sent."""
        messages = [self._defused(message) for message in body.messages]
        try:
            text = self.renderer.text(self._sent.as_written(messages), body.shown_tools, body.chat_template_kwargs)
        except ChatError:  # some templates want calls in their place
            text = ""
        if text and self._extended_by(text):
            return text, True
        text = self.renderer.text(messages, body.shown_tools, body.chat_template_kwargs)
        return text, self._extended_by(text) is not None

    def _extended_by(self, text: str) -> Turn | None:
        """The longest turn that a prompt goes on from."""
        before = [turn for turn in self._turns if text.startswith(turn.text)]
        return max(before, key=lambda turn: len(turn.text), default=None)

    def _prompt_ids(self, text: str) -> list[int]:
        """The token ids of a prompt: those so far, and what the text adds."""
        turn = self._extended_by(text)
        if turn is None:
            return self._encode(text)
        return [*turn.prompt, *turn.output.tokens, *self._encode(text[len(turn.text) :])]

    def _defused(self, message: dict[str, object]) -> dict[str, object]:
        """What tools and users say cannot end their turn, or begin another one."""
        content = message.get("content")
        if message.get("role") not in ("tool", "user") or not isinstance(content, str):
            return message
        return {**message, "content": self.renderer.tokenizer.defused(content)}

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.renderer.tokenizer.encode(text, add_special_tokens=False).tolist()
        return ids

    async def generate(
        self,
        prompt_T: Ints,
        n: int,
        settings: SamplingSettings,
        purpose: Purpose = "training",  # noqa: ARG002 -- a rollout's purpose is known here
        evaluated_step: int | None = None,  # noqa: ARG002 -- as above
    ) -> GeneratedSamples:
        room = self._max_length - len(prompt_T)
        if room <= 0:
            self.overflowed = True
            raise ContextOverflowError(
                f"the prompt has {len(prompt_T)} tokens, and {self._max_length} are the most of prompt and answer "
                f"together (env.max_token_length): there is no room for an answer"
            )
        limited = replace(settings, max_tokens=min(settings.max_tokens, room))
        work = self._sample(prompt_T.tolist(), n, limited)
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        self._running.add(task)
        try:
            return GeneratedSamples(await task)
        except asyncio.CancelledError:
            if self.is_over:
                raise RefusedRequestError(OVER, status=409) from None
            raise
        except Exception as error:  # whatever the policy's server raises: the program may try again
            raise UnavailableError(f"the policy could not be sampled: {type(error).__name__}: {error}") from error
        finally:
            self._running.discard(task)

    def was_answered(self, prompt_T: Ints, generation: GeneratedSamples, messages: Sequence[dict[str, Any]]) -> None:
        tokenizer, prompt = self.renderer.tokenizer, prompt_T.tolist()
        text, opening = self._asked.get(prompt_T.tobytes()) or (tokenizer.verbatim(prompt_T), "")
        for index, sample in enumerate(generation.samples):
            written = tokenizer.verbatim(sample.tokens_T)
            output = Output(sample.tokens_T.tolist(), sample.logprobs_T.tolist())
            if output.tokens:
                self._turns.append(Turn(prompt, output, text + written))
            if messages:
                self._sent.add(messages[index], opening + written.removesuffix(tokenizer.eos or ""))


KEYS_REMEMBERED = 10_000
"""Of rollouts that are over: a program that goes on is told so, and not that its key is wrong."""


class SessionServer:
    """On loopback, on a port that the kernel chooses. `max_length` bounds prompt and answer together, in tokens."""

    def __init__(self, renderer: ChatRenderer, model: str, max_length: int) -> None:
        self._renderer, self._max_length = renderer, max_length
        self._endpoint = Endpoint(model, renderer, max_length, self._whose)
        self._sessions: dict[str, RolloutSession] = {}
        self._over: deque[str] = deque(maxlen=KEYS_REMEMBERED)
        self._serving = AsyncExitStack()
        self._url = ""

    async def start(self) -> None:
        app = Starlette(routes=self._endpoint.routes(Told()))
        port = await self._serving.enter_async_context(serve(app, bind("127.0.0.1", 0, "the sessions' port")))
        self._url = f"http://127.0.0.1:{port}/v1"

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session)
        await self._serving.aclose()

    def begin(self, sample: Sampling, split: str = "train") -> RolloutSession:
        session = RolloutSession(self._url, self._renderer, sample, self._max_length, split)
        self._sessions[session.api_key] = session
        return session

    def end(self, session: RolloutSession) -> None:
        session.end()
        if self._sessions.pop(session.api_key, None) is not None:
            self._over.append(session.api_key)

    def _whose(self, request: Request) -> RolloutSession:
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if key in self._sessions:
            return self._sessions[key]
        if key in self._over:
            raise RefusedRequestError(OVER, status=409)
        raise RefusedRequestError("the key is of no rollout: each has one of its own", status=401)
