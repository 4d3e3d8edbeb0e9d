"""The items to train on, made ahead of their use and kept: a generator may take a second for one."""

import asyncio
import hashlib
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tinker_atropos.environments.adapters.reasoning_gym.task_worker import Entry, TaskSettings, TaskWorkers

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
        """All in a random order, then in another, without end."""
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
        """The items to train on that were made so far."""
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
