"""reasoning-gym's generators and graders, in processes of their own, and the items that they make.

They are pure Python that may take a second for an item, and graders evaluate what a policy wrote: in the environment's
own process either would stop all rollouts. A call that takes too long ends its process, and another takes its place.
"""

import asyncio
import hashlib
import logging
import multiprocessing
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from typing import Any, Final, TypeVar

from pebble import ProcessExpired, ProcessPool

from tinker_atropos.environments.rollout.rollouts import TransportError

WORKERS: Final = 2
"""One may generate while the other grades."""

GENERATION_SECONDS: Final = 120.0
SETUP_SECONDS: Final = 120.0
"""Also of the first call, which imports the library."""

LONGEST_FOLDER: Final = 60
"""Characters of the temporary folder in which a socket has room."""

T = TypeVar("T")
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """A task and the values of its dataset's fields that differ from the library's own."""

    task: str
    fields: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"{self.task} {sorted(self.fields.items(), key=lambda item: item[0])!r}"


class TaskWorkers:
    """Started by the first call. `close` ends them."""

    def __init__(self, scoring_seconds: float) -> None:
        self._scoring_seconds = scoring_seconds
        self._pool = ProcessPool(max_workers=WORKERS, context=forking_server())

    async def check(self, settings: TaskSettings) -> None:
        """Raises AssertionError, TypeError or ValueError, as the library does, if the fields do not fit."""
        await self._called(SETUP_SECONDS, check, settings)

    async def entries(self, settings: TaskSettings, seed: int, indexes: Sequence[int]) -> list[Entry]:
        """Items of the dataset of a seed: `question`, `answer` and `metadata`. Raises TimeoutError."""
        return await self._called(GENERATION_SECONDS, entries, settings, seed, indexes)

    async def score(self, settings: TaskSettings, completion: str, entry: Entry) -> float | str:
        """The reward of a completion; why the grader could not judge it, where it raised. Raises TimeoutError."""
        return await self._called(self._scoring_seconds, score, settings, completion, entry)

    async def _called(self, seconds: float, function: Callable[..., T], *arguments: Any) -> T:
        future = self._pool.schedule(function, args=arguments, timeout=seconds)
        try:
            result: T = await asyncio.wrap_future(future)
        except TimeoutError:
            raise TimeoutError(f"reasoning-gym took longer than {seconds:g} s to {_DOING[function]}") from None
        except ProcessExpired as error:
            raise TransportError(f"the process that was to {_DOING[function]} ended: {error}") from error
        return result

    async def close(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        await asyncio.to_thread(self._pool.join)


def forking_server() -> Any:
    """Where processes come from. Not by fork: this process has threads. The first call starts the server that forks
    them, and returns while that imports the library, once.

    The path of its socket must be shorter than 108 bytes, and TMPDIR may not be.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([f"{__package__}.library", __name__])
    chosen = tempfile.gettempdir()
    tempfile.tempdir = chosen if len(chosen) <= LONGEST_FOLDER else "/tmp"  # noqa: S108 -- a folder that is made in it
    try:
        forkserver.ensure_running()
    finally:
        tempfile.tempdir = chosen
    return context


# What runs in the processes. Only there is the library imported by these functions: a process that starts the server
# must not wait for its own import first.


def check(settings: TaskSettings) -> None:
    _made(settings, 0)


def entries(settings: TaskSettings, seed: int, indexes: Sequence[int]) -> list[Entry]:
    dataset = _made(settings, seed)
    return [dataset[index] for index in indexes]


def score(settings: TaskSettings, completion: str, entry: Entry) -> float | str:
    """Some graders raise on an answer that is not in their format, and they are not told which exceptions."""
    from tinker_atropos.environments.adapters.reasoning_gym.library import extract_answer

    dataset = _made(settings, 0)
    try:
        return float(dataset.score_answer(extract_answer(completion), entry))
    except Exception as error:  # noqa: BLE001 -- see above
        return f"{type(error).__name__}: {error}"


def _made(settings: TaskSettings, seed: int) -> Any:
    """A dataset; making one may read files, so it is kept."""
    from tinker_atropos.environments.adapters.reasoning_gym.library import create_dataset

    key = settings.key, seed
    if key not in _made_datasets:
        _made_datasets[key] = create_dataset(settings.task, seed=seed, **settings.fields)
    return _made_datasets[key]


_made_datasets: dict[tuple[str, int], Any] = {}

_DOING: Final[dict[Callable[..., Any], str]] = {
    check: "check the settings",
    entries: "make an item",
    score: "score an answer",
}


logger = logging.getLogger(__name__)

CHUNK: Final = 8
"""Held-out items that are made in one call."""

KEPT: Final = 4096
"""Items that are not made again when their positions come again, or the next epoch does."""

MOST_TIMEOUTS: Final = 3

FEW_REPEAT: Final = 0.8
SMALL_SHARE: Final = 0.2
"""If less than FEW_REPEAT of the held-out items are different, SMALL_SHARE of those are held out."""


@dataclass(frozen=True, slots=True)
class TaskItem:
    """An item of a task, made at a level of its curriculum. `entry` is the library's: `question`, `answer` (None: any
    that its grader accepts), `metadata`.
    """

    settings: TaskSettings
    entry: Entry
    level: int = 0

    @property
    def question(self) -> str:
        return str(self.entry["question"])


class TaskItems:
    """Items of the datasets of one seed, each made once when it is first asked for."""

    def __init__(self, workers: TaskWorkers, seed: int) -> None:
        self._workers, self._seed = workers, seed
        self._made: dict[tuple[str, int], asyncio.Task[TaskItem]] = {}

    async def item(self, settings: TaskSettings, index: int, level: int) -> TaskItem:
        """Raises TimeoutError, and what the library raises."""
        key = settings.key, index
        making = self._made.get(key)
        if making is None or (making.done() and (making.cancelled() or making.exception())):
            making = self._made[key] = asyncio.create_task(self._make(settings, index, level))
            if len(self._made) > KEPT:
                self._made.pop(next(iter(self._made)))
        return await asyncio.shield(making)  # several may wait for it

    @property
    def known(self) -> list[TaskItem]:
        """Those that were made so far."""
        done = (each for each in self._made.values() if each.done() and not each.cancelled())
        return [each.result() for each in done if each.exception() is None]

    async def _make(self, settings: TaskSettings, index: int, level: int) -> TaskItem:
        for _ in range(MOST_TIMEOUTS - 1):
            try:
                [entry] = await self._workers.entries(settings, self._seed, [index])
                return TaskItem(settings, entry, level)
            except TimeoutError as error:
                logger.warning("%s: again", error)
        [entry] = await self._workers.entries(settings, self._seed, [index])
        return TaskItem(settings, entry, level)


async def held_out(workers: TaskWorkers, settings: TaskSettings, seed: int, count: int) -> list[TaskItem]:
    """The different ones among the first `count` items of another seed. If they repeat so often that there cannot be
    many more, only a fifth of them is held out, by a hash of the question: the others are trained.
    """
    chunks = [range(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
    made = await asyncio.gather(*(workers.entries(settings, seed, chunk) for chunk in chunks))
    items = {str(entry["question"]): TaskItem(settings, entry) for entries in made for entry in entries}
    if len(items) >= FEW_REPEAT * count:
        return list(items.values())
    chosen = [item for question, item in items.items() if _hashed(question) < SMALL_SHARE]
    return chosen or list(items.values())[:1]


def _hashed(question: str) -> float:
    """From 0 to 1, evenly."""
    return int.from_bytes(hashlib.sha256(question.encode()).digest()[:4]) / 2**32
