"""reasoning-gym's generators and graders, in processes of their own, and the items to train on, made ahead of use.

They are pure Python that may take a second for an item, and graders evaluate what a policy wrote: in the environment's
own process either would stop all rollouts. A call that takes too long ends its process, and another takes its place.
"""

import asyncio
import hashlib
import logging
import multiprocessing
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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

AHEAD: Final = 64
"""Items that wait to be used. A batch is a few groups, so this is some steps' worth."""

CHUNK: Final = 8
KEPT: Final = 4096
"""Items that are not made again when all have been used once."""

MOST_DUPLICATES: Final = 1_000
"""This many items in a row that are held out: the task has too few different ones."""

MOST_TIMEOUTS: Final = 3

FEW_REPEAT: Final = 0.8
SMALL_SHARE: Final = 0.2
"""If less than FEW_REPEAT of the held-out items are different, SMALL_SHARE of those are held out."""


class TooFewItemsError(ValueError):
    """Nearly all items that the task makes are held out."""


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


@dataclass(frozen=True, slots=True)
class ItemChoice:
    """Items 0 to `size` - 1 of the dataset of `seed`, in orders that follow from `order`, at a curriculum's level."""

    seed: int
    size: int
    order: str
    level: int = 0

    def indexes(self) -> Iterator[int]:
        generator = random.Random(self.order)  # noqa: S311 -- an order
        while True:
            yield from generator.sample(range(self.size), self.size)


class ItemStream:
    """Items of one task, in a random order, then again in another, without end. Those whose question is held out are
    left out.
    """

    def __init__(self, workers: TaskWorkers, settings: TaskSettings, choice: ItemChoice) -> None:
        self._workers, self._settings, self._choice = workers, settings, choice
        self._indexes = choice.indexes()
        self._made: dict[int, TaskItem] = {}
        self._ready: asyncio.Queue[TaskItem] = asyncio.Queue(AHEAD)
        self._filling: asyncio.Task[None] | None = None
        self._withheld: frozenset[str] = frozenset()

    def begin(self, withheld: frozenset[str]) -> None:
        """Start making items. `withheld` are the questions of held-out items."""
        self._withheld = withheld
        self._filling = asyncio.create_task(self._fill(), name=f"items of {self._settings.task}")

    async def next(self) -> TaskItem | None:
        """None: it has ended meanwhile, and another has taken its place. Raises what kept items from being made."""
        assert self._filling is not None, "it was begun"
        waiting = asyncio.ensure_future(self._ready.get())
        await asyncio.wait({waiting, self._filling}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        waiting.cancel()
        if not self._filling.cancelled():
            self._filling.result()
        return None

    def end(self) -> None:
        if self._filling is not None:
            self._filling.cancel()

    @property
    def known(self) -> list[TaskItem]:
        return [item for item in self._made.values() if item.question not in self._withheld]

    async def _fill(self) -> None:
        duplicates = 0
        while True:
            for item in await self._chunk():
                if item.question in self._withheld:
                    duplicates += 1
                    if duplicates >= MOST_DUPLICATES:
                        raise TooFewItemsError(
                            f"{self._settings.task} has made {duplicates} items in a row that are held out: with "
                            f"these settings it has too few different ones; widen its ranges, or lower env.eval_items"
                        )
                    continue
                duplicates = 0
                await self._ready.put(item)

    async def _chunk(self) -> list[TaskItem]:
        indexes = [next(self._indexes) for _ in range(CHUNK)]
        missing = [index for index in dict.fromkeys(indexes) if index not in self._made]
        made = dict(zip(missing, await self._entries(missing), strict=True)) if missing else {}
        items = {index: made[index] if index in made else self._made[index] for index in indexes}
        if len(self._made) < KEPT:
            self._made |= made
        return [items[index] for index in indexes]

    async def _entries(self, indexes: list[int]) -> list[TaskItem]:
        for attempt in range(1, MOST_TIMEOUTS + 1):
            try:
                entries = await self._workers.entries(self._settings, self._choice.seed, indexes)
            except TimeoutError as error:
                if attempt == MOST_TIMEOUTS:
                    raise
                logger.warning("%s: again", error)
            else:
                return [TaskItem(self._settings, entry, self._choice.level) for entry in entries]
        raise AssertionError("the last attempt raises")


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
