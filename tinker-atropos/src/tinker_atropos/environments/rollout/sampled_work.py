"""What a part of an environment's work samples through `env.server`, and for what purpose.

A context variable identifies the work: tasks inherit it, so it applies to whatever an environment starts. Requests of
evaluations are marked (`rl_purpose`, `rl_evaluation`): the trainer does not count them as training, and samples them
from the weights that the evaluation is of. What bypasses `env.server` with a client of its own is not seen here, unless
it asks for the `current_work`, sends its `marks` and adds what it sampled.

Part of an evaluation may be greedy: whatever its code asks for, its requests are at temperature 0.

Each request gets a seed, unless it has its own: a function of the run's seed, the item, the rollout and its turn. Turns
are counted as they are asked for. A request of no known rollout, such as one for all first answers of a group or one of
code that was not written for us, goes by its prompt and by how often that was asked before, in the same group.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tinker_atropos.chat.sampling import seed_from

Wrapper = Callable[..., Awaitable[Any]]
T = TypeVar("T")

item_under_way: ContextVar[int | None] = ContextVar("item_under_way", default=None)
"""The position of the training item that a group is made of, or the index of the held-out one that is answered."""


@dataclass(frozen=True, slots=True)
class SampledAnswers:
    """What one request sampled: the token ids of its prompt and of its answers, and their logprobs if the request
    asked for them.
    """

    prompt: Sequence[int]
    tokens: Sequence[Sequence[int]]
    logprobs: Sequence[Sequence[float]] | None


@dataclass(slots=True)
class SampledWork:
    """What came back so far. `step`: the weights that an evaluation is of. `prompts`: hashes of the different ones.
    `tokens_failed`: those of rollouts that failed. `temperatures`: of what is not asked `greedily`; None: not known.
    `keep` is told of all answers. `seed` is the run's; None: samples get none.
    """

    purpose: Literal["training", "evaluation"]
    step: int | None = None
    seed: int | None = None
    completions: int = 0
    tokens: int = 0
    tokens_failed: int = 0
    prompts: set[int] = field(default_factory=set)
    temperatures: set[float | None] = field(default_factory=set)
    keep: Callable[[SampledAnswers], None] | None = None
    _begun: Counter[int | None] = field(default_factory=Counter)
    _asked: Counter[object] = field(default_factory=Counter)

    @property
    def independent(self) -> int:
        """How many completions can be taken for independent: those of one prompt are not."""
        return min(self.completions, len(self.prompts))

    @property
    def temperature(self) -> float | None:
        """The one that all was sampled at, greedy answers beside it left out; None: there are several, or it is not
        known.
        """
        return next(iter(self.temperatures)) if len(self.temperatures) == 1 else None

    @property
    def marks(self) -> dict[str, object]:
        """The fields that each request gets, in the place of its own ones, but for its seed."""
        if self.purpose == "training":
            return {}
        greedy = {"temperature": 0.0} if _greedy.get() else {}
        return {"rl_purpose": "evaluation", "rl_evaluation": self.step, **greedy}

    def next_rollout(self) -> int:
        """The number of the rollout that begins, among those of its item; one that replaces a failed one is new."""
        item = item_under_way.get()
        self._begun[item] += 1
        return self._begun[item] - 1

    def rollout_seed(self, rollout: int) -> dict[str, int]:
        """For clients that have one set of fields for all turns: the trainer adds the prompt to the seed."""
        return {} if self.seed is None else {"rl_seed": self._seed("rollout", rollout)}

    def request_seed(self, prompt: object) -> dict[str, int]:
        """For a request that is made now."""
        if self.seed is None:
            return {}
        rollout = _rollout.get()
        of = ("prompt", str(prompt)) if rollout is None else ("rollout", rollout)
        turn = self._asked[item_under_way.get(), of]
        self._asked[item_under_way.get(), of] += 1
        return {"seed": self._seed(*of, turn)}

    def _seed(self, *parts: object) -> int:
        return seed_from(self.seed, self.purpose, item_under_way.get(), *parts)

    def add(self, prompt: Any, completions: int, tokens: int, temperature: float | None = None) -> None:
        """So many completions of one prompt (token ids, a text, or messages) came back."""
        self.prompts.add(hash(str(prompt)))
        if not _greedy.get():
            self.temperatures.add(temperature)
        self.completions += completions
        self.tokens += tokens


_current: ContextVar[SampledWork | None] = ContextVar("sampled", default=None)
_greedy: ContextVar[bool] = ContextVar("greedy", default=False)
_rollout: ContextVar[int | None] = ContextVar("rollout", default=None)


async def as_rollout(work: Awaitable[T]) -> T:
    """What is asked in it is of one rollout, and is asked in turns. Called in the order of the rollouts."""
    sampled = _current.get()
    token = _rollout.set(None if sampled is None else sampled.next_rollout())
    try:
        return await work
    finally:
        _rollout.reset(token)


async def together(work: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """The results of all, in order. The first error cancels the others: their samples would not be used."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


@contextlib.contextmanager
def sampling(
    purpose: Literal["training", "evaluation"],
    step: int | None = None,
    keep: Callable[[SampledAnswers], None] | None = None,
    seed: int | None = None,
) -> Iterator[SampledWork]:
    """Count what is sampled inside the block."""
    sampled = SampledWork(purpose, step, seed, keep=keep)
    token = _current.set(sampled)
    try:
        yield sampled
    finally:
        _current.reset(token)


@contextlib.contextmanager
def greedily() -> Iterator[None]:
    """What an evaluation samples inside the block is sampled at temperature 0."""
    token = _greedy.set(True)
    try:
        yield
    finally:
        _greedy.reset(token)


def current_work() -> SampledWork | None:
    """The work that the caller is a part of."""
    return _current.get()


def watch(server: Any) -> None:
    """Mark and count the requests of one of atroposlib's servers, at the three methods that all of them go through."""
    server._tokens_and_logprobs_completion_wrapper = _by_tokens(server._tokens_and_logprobs_completion_wrapper)  # noqa: SLF001 -- see above
    server._completion_wrapper = _by_usage(server._completion_wrapper)  # noqa: SLF001 -- see above
    server._chat_completion_wrapper = _by_usage(server._chat_completion_wrapper)  # noqa: SLF001 -- see above


def _by_tokens(request: Wrapper) -> Wrapper:
    """`/generate`: keyword arguments become its sampling parameters."""

    async def watched(**kwargs: object) -> object:
        sampled = _current.get()
        if sampled is not None:
            kwargs = sampled.request_seed(_prompt(kwargs)) | kwargs | sampled.marks
        answer = await request(**kwargs)
        if sampled is not None:
            prompt, outputs, logprobs, _ = answer
            sampled.add(_prompt(kwargs), len(outputs), sum(map(len, outputs)), _temperature(kwargs))
            if sampled.keep is not None:
                sampled.keep(SampledAnswers(prompt, outputs, logprobs))
        return answer

    return watched


def _by_usage(request: Wrapper) -> Wrapper:
    """OpenAI's routes: its client sends additional fields by `extra_body`."""

    async def watched(**kwargs: Any) -> Any:
        sampled = _current.get()
        if sampled is not None:
            kwargs = sampled.request_seed(_prompt(kwargs)) | kwargs
            ids = {"return_token_ids": True} if sampled.keep is not None and sampled.marks else {}
            if ids or sampled.marks:
                kwargs["extra_body"] = {**(kwargs.get("extra_body") or {}), **ids, **sampled.marks}
        answer = await request(**kwargs)
        if sampled is not None:
            tokens = answer.usage.completion_tokens if answer.usage else 0
            sampled.add(_prompt(kwargs), len(answer.choices), tokens, _temperature(kwargs))
            if sampled.keep is not None and (kept := _answers_of(answer)) is not None:
                sampled.keep(kept)
        return answer

    return watched


def _answers_of(answer: Any) -> SampledAnswers | None:
    """By the names that vLLM has for token ids; None if the server sends none, as an older trainer."""
    prompt = getattr(answer, "prompt_token_ids", None)
    tokens: list[Any] = [getattr(choice, "token_ids", None) for choice in answer.choices]
    return SampledAnswers(prompt, tokens, None) if prompt and None not in tokens else None


def _prompt(request: Mapping[str, object]) -> object:
    return next((request[name] for name in ("input_ids", "prompt", "messages") if name in request), None)


def _temperature(request: Mapping[str, object]) -> float | None:
    """Of all dialects it is 1 if nothing is said; None: what is said is not a number."""
    asked = request.get("temperature", 1.0)
    return 1.0 if asked is None else float(asked) if isinstance(asked, int | float) else None
