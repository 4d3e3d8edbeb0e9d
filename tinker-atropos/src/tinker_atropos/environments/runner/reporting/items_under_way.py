"""What becomes of the items that this process was dealt, until the trajectory API is told."""

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from rl_contract.rollout_fates import ItemEnd
from tinker_atropos.environments.rollout.sampled_work import item_under_way


@dataclass(slots=True)
class ItemUnderWay:
    """`waiting`: no work on it goes on now. `judged`: it is decided whether its groups are sent. `sent`: a group of it
    has its position. `reason`: why one was lost.
    """

    item: object
    waiting: bool = True
    judged: bool = False
    sent: bool = False
    reason: ItemEnd = "by_environment"


class ItemsUnderWay:
    """What becomes of the items that were given, by position. `ended` has those that became no group, and why, until
    that is told. Without a run nothing is given, and all of this does nothing. `in_order`: what becomes of an item does
    not depend on which is made first.
    """

    def __init__(self, holder: str = "", *, in_order: bool = False) -> None:
        self.holder, self._in_order = holder, in_order
        self._moved = asyncio.Event()
        self.ended: list[tuple[int, ItemEnd]] = []
        self._items: dict[int, ItemUnderWay] = {}

    def given(self, position: int, item: object) -> None:
        self._items[position] = ItemUnderWay(item)

    @contextlib.contextmanager
    def worked_on(self, running: dict[str, Any]) -> Iterator[None]:
        """While BaseEnv works on one of its `running_items`. Its task and what that starts know the position. What is
        canceled may come again, from BaseEnv's backlog.
        """
        running["position"] = position = self._waiting(running["item"])
        item_under_way.set(position)
        try:
            yield
        except asyncio.CancelledError:
            if position in self._items:
                self._items[position].waiting = True
            raise
        finally:
            if (work := self._current) is not None and not work.waiting:
                self.end(position, work.reason)

    def _waiting(self, item: object) -> int | None:
        """The position of an item that is begun, and is waiting no longer. None: the environment made it."""
        found = next((each for each, work in self._items.items() if work.waiting and work.item is item), None)
        if found is not None:
            self._items[found].waiting = False
        return found

    @property
    def positions(self) -> Collection[int]:
        """Of the items that have not ended."""
        return self._items.keys()

    @property
    def _current(self) -> ItemUnderWay | None:
        position = item_under_way.get()
        return None if position is None else self._items.get(position)

    def comes_back_as(self, item: object) -> None:
        """The environment has put `item` into its backlog instead of making a group of the present one."""
        if (work := self._current) is not None:
            work.item, work.waiting = item, True

    def lost(self, reason: ItemEnd) -> None:
        """A group of the present item is not sent."""
        if (work := self._current) is not None:
            work.reason = reason

    async def turn(self) -> None:
        """The rollouts of the present item are made. With `in_order`, wait until all items before it have been judged;
        the caller judges this one at once.
        """
        work, position = self._current, item_under_way.get()
        if work is None or position is None:
            return
        while self._in_order and any(each < position and not other.judged for each, other in self._items.items()):
            await self._moved.wait()
        work.judged = True
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def claim(self) -> dict[str, object]:
        """What the first group of the present item says beside its rollouts; nothing for the others."""
        work, position = self._current, item_under_way.get()
        if work is None or work.sent:
            return {}
        work.sent = True
        return {"position": position, "holder": self.holder}

    def not_sent(self, reason: ItemEnd) -> None:
        """The group that had the position did not arrive."""
        if (work := self._current) is not None:
            work.sent, work.reason = False, reason

    def end(self, position: int | None, reason: ItemEnd) -> None:
        """No work on it goes on any more. If no group of it was sent, that is for `reason`."""
        if position is not None and (work := self._items.pop(position, None)) is not None:
            self._move()
            if not work.sent:
                self.ended.append((position, reason))
