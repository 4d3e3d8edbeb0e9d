"""Processes that are dealt items by the real trajectory API: whatever becomes of them, each item is consumed once."""

import asyncio
import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tinker_atropos.environments.scripted_environment import Capitals, alone
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from tinker_atropos.environments.items.item_order import LeftOut
from tinker_atropos.environments.rollout.sampled_work import item_under_way
from tinker_atropos.environments.runner.dealt_items import MOST_KEPT, SKIP_SECONDS, DealtItems, DrawnItems
from tinker_atropos.environments.runner.reporting.items_under_way import ItemsUnderWay
from tinker_atropos.errors import ConfigError, InternalError
from tinker_atropos.trajectory_api.api_routes import trajectory_app
from tinker_atropos.trajectory_api.service.trajectory_service import TrajectoryService
from tinker_atropos.trajectory_api.store.journal import Journal

REASONS = ("equal", "raised", "refused", "undelivered", "overdue", "by_environment")
FATES = ("sent", "sent", *REASONS, "canceled", "comes back")
LEASE_SECONDS = 60


class Letters(Capitals):
    """`c` is held out, too."""

    def training_items(self):
        return list("abcefgh")


class Drawing(Letters):
    """Draws by a generator that is seeded as the run says."""

    async def get_next_item(self):
        if not hasattr(self, "generator"):
            self.generator = random.Random(0)
        return self.generator.choice("abcefgh"), self.generator.random()

    def question(self, item):
        return item[0] if isinstance(item, tuple) else item


@dataclass
class Attempt:
    """The run's trajectory API, its clock, and what the test knows of the items that processes have worked on."""

    http: httpx.AsyncClient
    now: float = 0.0
    trained: Counter[int] = field(default_factory=Counter)
    items: dict[int, Any] = field(default_factory=dict)
    number: int = 0

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def books(self) -> Any:
        books = (await self.http.get("/rl/books")).json()["items"]
        assert books["seen"] == books["trained"] + sum(books["dropped"].values()) + books["under_way"]
        return books


@contextlib.asynccontextmanager
async def attempt() -> AsyncIterator[Attempt]:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Journal(Path(folder), 2**26)) as journal:
        started = Attempt(httpx.AsyncClient())
        service = TrajectoryService(journal, lambda: started.now)
        transport = httpx.ASGITransport(trajectory_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as started.http:
            await started.post("/register", build.trainer_registration(batch_size=64))
            await started.http.get("/batch")
            yield started
        service.close()


class Process:
    """An environment's process, up to where BaseEnv would work on its items."""

    def __init__(self, run: Attempt, environment: type[Any] = Letters, workers: int = 3) -> None:
        run.number += 1
        self.run, self.name = run, f"process-{run.number}"
        self.env = alone(environment, max_batches_offpolicy=4, batch_size=32, group_size=2)
        self.env.__dict__ |= {"workers": set(), "max_num_workers": workers, "eval_runner": None}
        self.env.status_dict = {"queue_size": 0, "unallocated_fraction": 1.0}
        self.env.config.min_batch_allocation = None
        self.under_way = ItemsUnderWay(self.name)
        self.dealt = DealtItems(self.env, self.under_way, run.http, 0)
        self.backlog: list[Any] = []

    async def heartbeat(self) -> None:
        report = {"state": "working", "ttl_seconds": 15, "id": self.name}
        await self.run.http.put("/rl/lease/environment", json=report)

    async def work(self, fate: str) -> None:
        """On one item, from its backlog if that has any; as BaseEnv.add_train_workers starts it."""
        item = self.backlog.pop() if self.backlog else await self.env.get_next_item()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.create_task(self._worked({"item": item}, fate))

    async def _worked(self, running: dict[str, Any], fate: str) -> None:
        with self.under_way.worked_on(running):
            position = item_under_way.get()
            self.run.items[position] = running["item"]
            if fate == "canceled":
                self.backlog.append(running["item"])
                raise asyncio.CancelledError
            if fate == "comes back":
                self.backlog.append(running["item"])
                self.under_way.comes_back_as(running["item"])
            elif fate == "sent":
                told = {"environment": 0, **self.under_way.claim()}
                assert self.under_way.claim() == {}, "further groups of the item have no position"
                await self.run.post("/scored_data", build.group(group_overrides=told, env_id=None))
                self.run.trained[position] += 1
            elif fate in ("refused", "undelivered"):
                self.under_way.claim()
                self.under_way.not_sent(fate)
            elif fate == "overdue":
                self.dealt.end(running["position"], fate)
            elif fate != "by_environment":
                self.under_way.lost(fate)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from((*FATES, "killed"))), max_size=40))
def test_each_item_is_consumed_once_whoever_it_is_dealt_to_and_whatever_becomes_of_it(schedule) -> None:
    asyncio.run(_scheduled(schedule))


async def _scheduled(schedule: list[tuple[int, str]]) -> None:
    async with attempt() as run:
        processes = [Process(run) for _ in range(4)]
        for number, fate in schedule:
            if fate == "killed":
                processes[number] = Process(run)
                run.now += LEASE_SECONDS + 1
            else:
                await processes[number].work(fate)
            for process in processes:
                await process.heartbeat()
        for process in processes:
            while process.backlog:
                await process.work("sent")
            await process.dealt.report_last()
        for _ in range(30):  # what the killed ones had comes first
            await processes[0].work("sent")
        await processes[0].dealt.report_last()
        books = await run.books()
        order = run.items
        assert set(run.trained.values()) <= {1}
        epoch_items = [await processes[1].env.item_in_order(position) for position in range(books["seen"])]
        assert all(order[position] == epoch_items[position] for position in order), "a position is one item"
        left_out = {position for position in range(books["seen"]) if epoch_items[position] == "c"}
        assert not left_out & order.keys(), "what is held out is never worked on"
        lost = sum(books["dropped"].values())
        held = sum(len(process.dealt._positions) for process in processes)
        assert len(run.trained) + lost + held == books["seen"], "none is missed"
        assert books["dropped"].keys() <= {*REASONS, "held_out"}


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_an_epoch_has_each_item_once_with_any_number_of_processes(count) -> None:
    async with attempt() as run:
        processes = [Process(run, workers=1) for _ in range(count)]
        for number in range(18):  # three epochs of six
            await processes[number % count].work("sent")
        shown = [run.items[position] for position in sorted(run.items)]
        assert [sorted(shown[first : first + 6]) for first in (0, 6, 12)] == [list("abefgh")] * 3
        for process in processes:
            await process.dealt.report_last()
        assert (await run.books())["dropped"]["held_out"] in (2, 3)


async def test_environments_that_draw_share_one_sequence_of_draws() -> None:
    async with attempt() as run:
        first, second = Process(run, Drawing, workers=1), Process(run, Drawing, workers=1)
        for number in range(30):
            await (first, second)[number % 3 == 0].work("sent")
        draws = Process(run, Drawing).env
        drawn = [await type(draws).get_next_item(draws) for _ in range(60)]
        assert len(run.items) == 30
        assert all(drawn[position] == item for position, item in run.items.items())
        assert "c" not in {letter for letter, _ in run.items.values()}


async def test_an_answer_that_is_lost_costs_no_item_and_what_is_under_way_is_not_begun_again() -> None:
    async with attempt() as run:
        process = Process(run, workers=2)
        await process.dealt._ask(2)  # its answer is lost
        await process.work("sent")
        assert list(run.items) == [0]
        process.under_way.given(1, "a")
        await run.post("/rl/items", {"id": process.name, "count": 0, "held": []})  # it has forgotten what it dealt
        await process.work("sent")
        assert min(run.items.keys() - {0}) > 1


@dataclass
class Draws:
    """`cost`: seconds of each."""

    cost: float = 0.0
    drawn: int = 0
    now: float = 0.0
    last: int = 10**9
    given_up: int = 0

    async def draw(self) -> int | None:
        self.now += self.cost
        self.drawn += 1
        return self.drawn - 1 if self.drawn <= self.last else None

    def give_up(self) -> None:
        self.given_up += 1

    def items(self) -> DrawnItems:
        return DrawnItems(self.draw, self.give_up, lambda: self.now)


async def test_a_position_is_the_number_of_its_draw_also_of_one_that_is_given_back() -> None:
    items = Draws().items()
    assert [await items.item_at(position) for position in (3, 0, 4, 3)] == [3, 0, 4, 3]
    assert await items.item_at(MOST_KEPT + 10) == MOST_KEPT + 10
    assert await items.item_at(0) == LeftOut("not_drawn")
    assert await Draws(last=2).items().item_at(2) is None


async def test_it_stops_drawing_past_others_once_that_has_taken_too_long() -> None:
    draws = Draws(cost=SKIP_SECONDS / 10)
    items = draws.items()
    assert [await items.item_at(position) for position in (5, 11)] == [5, 11]
    assert draws.given_up == 0
    assert await items.item_at(100) == 13
    assert [await items.item_at(position) for position in (90, 200)] == [14, 15]
    assert draws.given_up == 1


async def test_what_the_api_refuses_or_has_none_of() -> None:
    async with attempt() as run:
        process = Process(run)
        answers = iter([httpx.Response(200, json={"positions": []}), httpx.Response(422, text="id is wrong")])
        transport = httpx.MockTransport(lambda _: next(answers))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            dealt = DealtItems(process.env, process.under_way, client, 0)
            assert await dealt.next() is None
            with pytest.raises(InternalError, match=r"the trajectory API deals no items \(HTTP 422\): id is wrong"):
                await dealt.next()


async def test_ended_items_are_told_within_a_second_and_at_the_end() -> None:
    now, asked = SimpleNamespace(seconds=0.0), []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.read())
        return httpx.Response(200, json={"positions": [7]})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://api") as client:
        under_way = ItemsUnderWay("me")
        env = alone(Letters)
        env.__dict__ |= {"workers": set(), "max_num_workers": 1, "eval_runner": None, "status_dict": {"queue_size": 0}}
        dealt = DealtItems(env, under_way, client, 0, clock=lambda: now.seconds)
        await dealt.report_last()
        assert asked == [], "an environment whose setup failed has no items, and its error is not to be hidden"
        for position, seconds in ((3, 0.5), (4, 1.0), (5, 1.5)):
            under_way.ended.append((position, "equal"))
            now.seconds = seconds
            await dealt.report()
        assert len(asked) == 1
        assert b'"ended":[{"position":3,"reason":"equal"},{"position":4,"reason":"equal"}]' in asked[0]
        await dealt.report_last()
        assert b'"ended":[{"position":5,"reason":"equal"}]' in asked[1]


async def test_if_all_that_is_dealt_is_held_out_it_says_so() -> None:
    class Memorized(Letters):
        def held_out_items(self):
            return self.training_items()

    async with attempt() as run:
        with pytest.raises(ConfigError, match="Memorized has given 1,000 items in a row"):
            await Process(run, Memorized, workers=600).env.get_next_item()


@pytest.mark.parametrize("in_order", [True, False])
async def test_in_order_items_are_judged_as_they_are_dealt_not_as_they_are_made(in_order) -> None:
    """Item 1 is made first, item 0 is canceled at the end: what is behind it goes on."""
    items, judged = ItemsUnderWay("me", in_order=in_order), []
    made = [asyncio.Event() for _ in range(4)]

    async def work(position: int) -> None:
        with items.worked_on({"item": position}):
            await made[position].wait()
            await items.turn()
            judged.append(position)

    for position in range(4):
        items.given(position, position)
    tasks = [asyncio.create_task(work(position)) for position in range(4)]
    for position in (2, 1, 3):
        made[position].set()
        await asyncio.sleep(0)
    assert judged == ([] if in_order else [2, 1, 3])
    items.end(0, "overdue")
    tasks[0].cancel()
    await asyncio.wait(tasks, timeout=60)
    assert judged == ([1, 2, 3] if in_order else [2, 1, 3])
