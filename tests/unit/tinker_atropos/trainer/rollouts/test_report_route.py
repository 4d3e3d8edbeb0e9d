"""Reports of environments, which may be untrusted code."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from tests.unit.tinker_atropos.trainer.rollouts.kept_steps import GROUP, SlowFolder, keeping, lines

from tinker_atropos.chat.request_handling import MAX_BODY_BYTES, RefusedRequestError
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.rollouts import report_route as route_module
from tinker_atropos.trainer.rollouts.report_route import (
    BRACKET_BYTES,
    LEAST_BYTES,
    MAX_BRACKETS,
    MAX_SENDERS,
    ReportBudget,
    report_route,
)
from tinker_atropos.trainer.rollouts.reported_rollouts import MAX_GROUPS, MAX_LOST
from tinker_atropos.trainer.rollouts.rollout_writer import RolloutWriter

EVALUATED = {"fate": "evaluated", "step": 3, "group": GROUP}
DROPPED = {"fate": "dropped", "reason": "equal", "group": GROUP}
LOST = {"what": "group", "reason": "overdue", "why": "60 s"}


@asynccontextmanager
async def route(folder, policy_step: int | None = 3) -> AsyncIterator[httpx.AsyncClient]:
    policy = CurrentPolicy()
    if policy_step is not None:
        policy.swap(Policy(policy_step, sampler=None))
    with keeping(folder) as keeper:
        async with client_of(keeper, policy) as client:
            yield client


def client_of(keeper: RolloutWriter, policy: CurrentPolicy, **options: Any) -> httpx.AsyncClient:
    app = Starlette(routes=[report_route(keeper, policy, vocabulary=512, total_steps=5, **options)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://trainer")


@pytest.mark.parametrize(("policy_step", "collecting"), [(None, 1), (0, 1), (3, 4), (5, 5)])
async def test_a_report_is_kept_with_the_step_that_is_collected(tmp_path, policy_step, collecting) -> None:
    async with route(tmp_path, policy_step) as client:
        body = {"environment": 2, "groups": [DROPPED], "lost": [LOST]}
        answer = await client.post("/rl/rollouts", json=body)
        assert (answer.status_code, answer.json()) == (200, {})
    dropped, lost = lines(tmp_path / f"{collecting:06d}-2.jsonl.zst")
    assert (dropped["reason"], dropped["environment"], lost["why"], lost["count"]) == ("equal", 2, "60 s", 1)


BAD: dict[str, tuple[Any, str]] = {
    "no object": ([], "should be an object"),
    "groups": ({"groups": 5}, "groups"),
    "too many groups": ({"groups": [EVALUATED] * (MAX_GROUPS + 1)}, "groups"),
    "too many losses": ({"lost": [LOST] * (MAX_LOST + 1)}, "lost"),
    "environment": ({"environment": -1}, "environment"),
    "fate": ({"groups": [EVALUATED | {"fate": "trained"}]}, "groups.0.fate"),
    "evaluated at which step": (
        {"groups": [DROPPED, {"fate": "evaluated", "group": GROUP}]},
        "groups.1: step is missing",
    ),
    "dropped at a step": ({"groups": [DROPPED | {"step": 3}]}, "groups.0: step is 3"),
    "a step that the run has not": (
        {"groups": [EVALUATED | {"step": 6}]},
        "groups[0].step is 6; the run has the steps 0 to 5",
    ),
    "worth of more": ({"groups": [EVALUATED | {"worth": [1, 0, 1]}]}, "groups.0: worth has 3 numbers"),
    "no reason": ({"groups": [{"fate": "dropped", "group": GROUP}]}, "groups.0: reason is missing"),
    "a long reason": ({"lost": [LOST | {"reason": "x" * 65}]}, "lost.0.reason"),
    "a long sentence": ({"lost": [LOST | {"why": "x" * 2001}]}, "lost.0.why"),
    "none lost": ({"lost": [LOST | {"count": 0}]}, "lost.0.count"),
    "what": ({"lost": [LOST | {"what": "run"}]}, "lost.0.what"),
    "a group of nothing": ({"groups": [EVALUATED | {"group": GROUP | {"tokens": []}}]}, "groups.0.group.tokens"),
    "a ragged group": ({"groups": [EVALUATED | {"group": GROUP | {"scores": [1.0]}}]}, "scores has 1 entries"),
    "a score that is none": (
        {"groups": [EVALUATED | {"group": GROUP | {"scores": [1.0, "x"]}}]},
        "groups.0.group.scores.1",
    ),
    "scores of some answers": (
        {"groups": [EVALUATED | {"group": GROUP | {"scores": [1.0, None]}}]},
        "groups.0: group.scores has null",
    ),
    "a dropped group without scores": (
        {"groups": [DROPPED | {"group": GROUP | {"scores": [None, None]}}]},
        "groups.0: group.scores has null",
    ),
    "ids outside the vocabulary": (
        {"groups": [DROPPED, EVALUATED | {"group": {"tokens": [[1, 512]], "masks": [[-100, 512]], "scores": [1.0]}}]},
        "groups[1].group: tokens[0][1] is 512; the model knows the ids 0 to 511",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "sentence"), BAD.values(), ids=BAD)
async def test_a_bad_report_is_refused_as_a_whole_and_says_what_is_wrong(tmp_path, body, sentence) -> None:
    async with route(tmp_path) as client:
        answer = await client.post("/rl/rollouts", json=body)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]["message"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"{" * 5000], ids=["empty", "torn", "no UTF-8", "deep"])
async def test_a_body_that_is_not_json(tmp_path, body) -> None:
    async with route(tmp_path) as client:
        assert (await client.post("/rl/rollouts", content=body)).status_code == 400


async def test_a_large_body(tmp_path) -> None:
    async with route(tmp_path) as client:
        answer = await client.post("/rl/rollouts", content=b" " * (MAX_BODY_BYTES + 1))
    assert answer.status_code == 413


async def test_too_many_reports_are_refused_counted_and_cost_nothing_else(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(route_module, "AT_ONCE_BYTES", 2 * route_module.LEAST_BYTES)
    with keeping(tmp_path) as keeper:
        async with client_of(keeper, CurrentPolicy(), clock=lambda: 0) as client:
            answers = [await client.post("/rl/rollouts", json={"lost": [LOST]}) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
        assert "too many rollouts are reported" in answers[-1].json()["error"]["message"]
        assert keeper.warning is not None
        assert keeper.warning.endswith("reports refused so far: 2")
        assert keeper.listing()["note"] == keeper.warning
    assert len(lines(tmp_path / "000001-2.jsonl.zst")) == 2


async def test_reports_wait_for_a_slow_disk_and_nothing_is_lost(tmp_path, monkeypatch) -> None:
    """The answers of an evaluation come as fast as they can be sent. Which of those that wait goes first is open."""
    monkeypatch.setattr("tinker_atropos.trainer.rollouts.report_route.ROOM_SECONDS", 600.0)
    folder = SlowFolder(tmp_path)
    with keeping(folder) as keeper:
        async with client_of(keeper, CurrentPolicy()) as client:
            sent = [asyncio.create_task(client.post("/rl/rollouts", json={"groups": [EVALUATED]})) for _ in range(6)]
            assert await asyncio.to_thread(folder.entered.wait, 60)
            while keeper.takes_reports:  # until they fill the room: pytest's limit ends a hang
                await asyncio.sleep(0)
            assert sum(each.done() for each in sent) <= 4
            folder.go_on.set()
            assert [answer.status_code for answer in await asyncio.gather(*sent)] == [200] * 6
            assert keeper.warning is None
    assert len(lines(tmp_path / "000003-2.jsonl.zst")) == 6


async def test_what_a_later_environment_adds_is_not_refused(tmp_path) -> None:
    async with route(tmp_path) as client:
        body = {"groups": [EVALUATED | {"color": "red"}], "lost": [LOST | {"color": "red"}], "color": "red"}
        assert (await client.post("/rl/rollouts", json=body)).status_code == 200


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> ReportBudget:
    """Of four reports at once, and one in two seconds."""
    monkeypatch.setattr(route_module, "AT_ONCE_BYTES", 4 * LEAST_BYTES)
    monkeypatch.setattr(route_module, "PER_SECOND_BYTES", LEAST_BYTES // 2)
    return ReportBudget(clock)


def taken(budget: ReportBudget, *addresses: str, body: bytes = b"{}") -> int:
    """How many of the reports from these addresses are taken, until one is refused."""
    for number, address in enumerate(addresses):
        try:
            budget.spend(address, body)
        except RefusedRequestError as error:
            return number if error.status == 429 else -1
    return len(addresses)


def test_small_reports_count_too_and_room_comes_back(budget: ReportBudget, clock: Clock) -> None:
    assert taken(budget, *["a"] * 9) == 4
    clock.now += 2
    assert taken(budget, *["a"] * 9) == 1
    clock.now += 1000
    assert taken(budget, *["a"] * 9) == 4, "not more than at first"


def test_a_large_report_counts_by_its_bytes(budget: ReportBudget) -> None:
    assert taken(budget, *["a"] * 9, body=bytes(2 * LEAST_BYTES)) == 2


def test_lists_and_objects_count_by_what_it_takes_to_read_them(budget: ReportBudget) -> None:
    assert taken(budget, *["a"] * 9, body=b"[{" * (LEAST_BYTES // BRACKET_BYTES)) == 1


def test_one_environment_leaves_the_others_their_room(budget: ReportBudget) -> None:
    assert taken(budget, *["a"] * 9, "b") == 4
    assert taken(budget, *["b"] * 9) == 4


def test_addresses_past_the_most_share_what_they_have(budget: ReportBudget) -> None:
    assert taken(budget, *(str(number) for number in range(MAX_SENDERS))) == MAX_SENDERS
    assert taken(budget, *(f"new {number}" for number in range(9))) == 4


def test_it_says_how_long_to_wait(budget: ReportBudget) -> None:
    taken(budget, *["a"] * 4)
    with pytest.raises(RefusedRequestError, match=r"These are not kept. Report fewer, or try again in 2 s"):
        budget.spend("a", b"{}")


@pytest.mark.parametrize("bracket", [b"[", b"{"])
def test_what_takes_long_to_read_is_refused_unread(bracket: bytes) -> None:
    budget = ReportBudget(Clock())
    budget.spend("a", bracket * MAX_BRACKETS)
    with pytest.raises(RefusedRequestError, match="has 262145 lists and objects; the limit is 262144") as caught:
        budget.spend("b", bracket * (MAX_BRACKETS + 1))
    assert caught.value.status == 413


def test_a_large_evaluation_fits_at_once() -> None:
    """500 answers of 8,000 tokens, 34 bytes each, as the runner sends them."""
    budget = ReportBudget(Clock())
    assert taken(budget, *["a"] * 260, body=bytes(500 * 8_000 * 34 // 260)) == 260
