"""The items of a run's one order that this process makes rollouts of: the trajectory API deals their positions out.

Of an environment that draws its items itself, position p is its p-th draw: it draws past what others were dealt, as
long as that is cheap, and nothing is promised.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx
import orjson

from tinker_atropos.environments.base import SampledEnvironment, draws_items
from tinker_atropos.environments.items.item_order import LeftOut
from tinker_atropos.environments.runner.reporting.api_requests import free_workers, post_until_answered
from tinker_atropos.environments.runner.reporting.items_under_way import ItemsUnderWay
from tinker_atropos.errors import InternalError

logger = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 1_024
"""Positions that the trajectory API deals to one request."""

MOST_ENDED: Final = 4_096
"""Ended items that it takes in one."""

REPORT_SECONDS: Final = 1.0
LAST_SECONDS: Final = 5.0
"""How long the last report may take."""


SKIP_SECONDS: Final = 30.0
"""For so long a process draws items that are not its own. Beyond that drawing is not cheap."""

MOST_KEPT: Final = 4_096
"""Drawn items that are kept, because their positions may be dealt to this process later."""


class DrawnItems:
    """Items of an environment that draws them with `draw`, by number of the draw. `on_give_up` is called once if
    drawing past items of others takes too long: from then on a position is whatever is drawn next.
    """

    def __init__(
        self,
        draw: Callable[[], Awaitable[Any]],
        on_give_up: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._draw, self._on_give_up, self._clock = draw, on_give_up, clock
        self._drawn = 0
        self._kept: dict[int, Any] = {}
        self._seconds_left = SKIP_SECONDS

    async def item_at(self, position: int) -> Any:
        """None if there is none."""
        while self._drawn <= position and self._seconds_left >= 0:
            begun, skipped = self._clock(), self._drawn < position
            if (item := await self._draw()) is None:
                return None
            self._keep(item)
            self._seconds_left -= (self._clock() - begun) * skipped
            if self._seconds_left < 0:
                self._on_give_up()
        if self._seconds_left < 0:
            return await self._draw()
        return self._kept.get(position, LeftOut("not_drawn"))

    def _keep(self, item: Any) -> None:
        self._kept[self._drawn] = item
        self._kept.pop(self._drawn - MOST_KEPT, None)
        self._drawn += 1


class DealtItems:
    """Takes the place of `get_next_item` of one environment: items are those at the positions that it is dealt."""

    def __init__(
        self,
        env: Any,
        under_way: ItemsUnderWay,
        client: httpx.AsyncClient,
        index: int,
        *,
        on_give_up: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`index` is the environment's, and `client` asks the trajectory API."""
        self._env, self._under_way, self._client, self._index, self._clock = env, under_way, client, index, clock
        self.end = under_way.end
        self._positions: deque[int] = deque()
        self._reported_at = clock()
        self._drawn = DrawnItems(env.get_next_item, on_give_up, clock) if draws_items(type(env)) else None
        self._item_at: Callable[[int], Awaitable[Any]] = self._drawn.item_at if self._drawn else env.item_at
        env.get_next_item = self.next

    async def next(self) -> Any:
        """The item of the next position; None if there is none now. Raises InternalError if the API refuses, or stays
        away.
        """
        while True:
            if not self._positions:
                self._positions += await self._ask(min(max(1, free_workers(self._env)), MOST_AT_ONCE))
            if not self._positions:
                return None
            item = await self._item_at(self._positions[0])
            if item is None or free_workers(self._env) <= 0:  # others may have been accepted meanwhile
                return None
            position = self._positions.popleft()
            if isinstance(self._env, SampledEnvironment):
                item = self._env.unless_held_out(item)
            if not isinstance(item, LeftOut):
                self._under_way.given(position, item)
                return item
            self._under_way.ended.append((position, item.reason))

    async def report(self) -> None:
        """Tell which items have ended, at most every REPORT_SECONDS."""
        if self._under_way.ended and self._clock() - self._reported_at >= REPORT_SECONDS:
            await self._ask(0)

    async def report_last(self) -> None:
        """Tell it now. Never raises: the run is over, or its setup failed, and then there is nothing to tell."""
        if not self._under_way.ended:
            return
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._ask(0)
        except (TimeoutError, InternalError) as error:
            logger.info("the trajectory API was not told of the last items: %r", error)

    async def _ask(self, count: int) -> list[int]:
        ended, later = self._under_way.ended[:MOST_ENDED], self._under_way.ended[MOST_ENDED:]
        asked = {
            "id": self._under_way.holder,
            "index": self._index,
            "count": count,
            "held": [*self._positions, *self._under_way.positions, *(position for position, _ in later)],
            "epoch_size": None if self._drawn else self._env.order.epoch_size,
            "ended": [{"position": position, "reason": reason} for position, reason in ended],
        }
        try:
            response = await post_until_answered(self._client, "/rl/items", orjson.dumps(asked), {})
        except httpx.HTTPError as error:
            raise InternalError(f"the trajectory API does not deal items: {error!r}") from None
        if not response.is_success:
            raise InternalError(
                f"the trajectory API deals no items (HTTP {response.status_code}): {response.text[:300]}"
            )
        del self._under_way.ended[: len(ended)]
        self._reported_at = self._clock()
        positions: list[int] = response.json()["positions"]  # an API that has forgotten whose they are deals them again
        return [position for position in positions if position not in self._under_way.positions]
