"""Groups are stored once each, in order, and within the limit."""

import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from tinker_atropos.trajectory_api.messages.requests import (
    EnvRegistration,
    PostedGroups,
    ProgressReport,
    RefusedGroup,
    RegisteredEnv,
)
from tinker_atropos.trajectory_api.store.arrivals import REPEAT_SECONDS
from tinker_atropos.trajectory_api.store.batches import drop_groups, take_batch
from tinker_atropos.trajectory_api.store.books import group_counts, kept_batches, read_books
from tinker_atropos.trajectory_api.store.journal import Journal
from tinker_atropos.trajectory_api.store.run_record import put_environment, record_progress

LARGE = "x" * 20_000
LIMIT = 400_000


async def fill(api) -> int:
    """Send groups of 20 kB until one is answered 503, after it was held. Returns how many were acknowledged."""
    accepted = 0
    while (await send(api, accepted)).status_code == 200:
        accepted += 1
    return accepted


async def send(api, number: int):
    return await api.http.post("/scored_data", json=build.group(first_token=number, images=LARGE))


async def held(api, number: int) -> asyncio.Task:
    """A POST that waits for room."""
    sending = asyncio.create_task(send(api, number))
    async with asyncio.timeout(60):
        while not api.service.intake.held:
            assert not sending.done(), (await sending).text
            await asyncio.sleep(0.01)
    return sending


async def test_a_client_that_waited_in_vain_is_told_to_retry(start_api) -> None:
    async with start_api(max_bytes=LIMIT, hold_seconds=0.1) as api:
        await api.begin(num_steps=1000)
        await api.get("/batch?step=0")
        accepted = await fill(api)
        answer = await send(api, 99)
        assert answer.status_code == 503
        assert f"holds its limit of {LIMIT} bytes" in answer.json()["detail"]
        books = await api.books()
        assert books["groups"]["received"] == books["groups"]["queued"] == accepted > 4
        assert api.service.unready() is None, "a full journal is no fault"


@pytest.mark.parametrize(
    "make_room",
    [
        ("/rl/progress", {"steps_trained": 1, "checkpoint_step": 1}),
        ("/rl/drop", {"ids": [1, 2], "reason": "stale"}),
        ("/register", {"starting_step": 1}),
    ],
)
async def test_a_held_post_is_answered_as_soon_as_there_is_room(start_api, make_room) -> None:
    async with start_api(max_bytes=LIMIT, hold_seconds=0.1) as api:
        await api.begin(num_steps=1000)
        await fill(api)
        await api.get("/batch?step=0")
        api.service.intake._hold_seconds = 20
        sending = await held(api, 100)
        path, body = make_room
        await api.post(path, build.trainer_registration(**body) if path == "/register" else body)
        async with asyncio.timeout(60):
            assert (await sending).status_code == 200
        assert api.service.intake.held == 0


async def test_a_waiting_trainer_is_never_locked_out_by_kept_groups(start_api) -> None:
    """The journal holds nothing but trained batches and two queued groups: the batch needs a third one."""
    async with start_api(max_bytes=LIMIT, hold_seconds=20) as api:
        await api.begin(num_steps=1000, batch_size=6)
        number = 0
        for step in range(100):
            for _ in range(3):
                sending = asyncio.create_task(send(api, number))
                number += 1
                while not sending.done() and not api.service.intake.held:
                    await asyncio.sleep(0.005)
                if not sending.done():
                    break
            if not sending.done():
                break
            assert len((await api.get(f"/batch?step={step}"))["batch"]) == 3
            await api.post("/rl/progress", {"steps_trained": step + 1})
        assert not sending.done(), "the journal never became full"
        waiting = asyncio.create_task(api.get(f"/batch?wait=20&step={step}"))
        async with asyncio.timeout(60):
            assert (await sending).status_code == 200
            while not waiting.done():
                await send(api, number)
                number += 1
        books = await api.books()
        assert books["groups"]["replay_evicted"] > 0
        assert books["groups"]["trained"] == 3 * step
        assert len((await waiting)["batch"]) == 3


async def test_a_full_disk_delays_posts_too_and_is_reported(start_api) -> None:
    """SQLite's own page limit gives the error code of a full disk; test_main.py fills a real one."""
    async with start_api(hold_seconds=0.1) as api:
        await api.begin(num_steps=1000)
        sql = api.service.journal._writer
        sql.execute("PRAGMA max_page_count = 60")
        accepted = await fill(api)
        assert "no room is left in" in (api.service.unready() or "")
        long_report = {"state": "working", "reason": "x" * 1000}
        answers = [await api.http.put("/rl/lease/environment", json=long_report | {"id": f"e{n}"}) for n in range(20)]
        assert answers[-1].status_code == 507
        held_ids = [lease["id"] for lease in api.service.leases.to_wire() if lease["state"] == "working"]
        assert "e19" in held_ids, "who speaks is alive, also when it cannot be written"
        api.service.intake._hold_seconds = 20
        sending = await held(api, 100)
        sql.execute("PRAGMA max_page_count = 1000")
        async with asyncio.timeout(60):
            assert (await sending).status_code == 200
        assert (await api.http.put("/rl/lease/environment", json=long_report | {"id": "e19", "index": 1})).is_success
        assert api.service.unready() is None
        assert api.service.status()["queue_size"] == accepted + 1 > 3


@pytest.fixture
def small_journal(tmp_path):
    journal = Journal(tmp_path / "small", 430_000)
    yield journal
    journal.close()


def test_a_repeat_is_answered_like_the_first_and_counted(journal) -> None:
    assert build.post(journal, build.delivery(1, 2)) == [("queued", "queued")]
    assert build.post(journal, build.delivery(2, 3), build.delivery(3), now=1.0) == [("queued", "queued"), ("queued",)]
    books = journal.read(read_books)
    assert (books["groups"]["received"], books["groups"]["duplicates"], books["groups"]["queued"]) == (3, 2, 3)
    assert (books["rollouts"]["received"], books["rollouts"]["duplicates"]) == (6, 4)


@pytest.mark.parametrize(("later", "received"), [(REPEAT_SECONDS, 1), (REPEAT_SECONDS + 1, 2)])
def test_repeats_are_remembered_for_longer_than_any_client_waits(journal, later, received) -> None:
    build.post(journal, build.delivery(1), now=1000.0)
    build.post(journal, build.delivery(1), now=1000.0 + later)
    assert journal.read(read_books)["groups"]["received"] == received


def test_a_repeat_is_recognized_after_its_group_was_trained_or_dropped(journal) -> None:
    build.post(journal, build.delivery(1, 2))
    batch = journal.write(take_batch, 0, 4, {})
    journal.write(drop_groups, batch.group_ids[:1], "stale")
    journal.write(record_progress, ProgressReport(steps_trained=1, checkpoint_step=1))
    build.post(journal, build.delivery(1, 2), now=1.0)
    assert journal.read(read_books)["groups"]["queued"] == 0


def test_a_buffered_repeat_is_answered_as_buffered(journal) -> None:
    register_env(journal, group_size=3)
    assert build.post(journal, build.delivery(1)) == [("buffered",)]
    assert build.post(journal, build.delivery(1), build.delivery(2, size=1)) == [("buffered",), ("buffered",)]
    assert {count.state for count in journal.read(group_counts)} == {"queued"}


def register_env(journal: Journal, group_size: int) -> None:
    body = EnvRegistration(max_token_length=9, group_size=group_size)
    journal.write(put_environment, RegisteredEnv(0, "sort_0", connected=True, registration=body))


@given(sizes=st.lists(st.integers(1, 4), max_size=12))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_buffered_groups_leave_as_soon_as_they_sum_to_the_group_size(tmp_path_factory, sizes) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal"), 2**28)
    register_env(journal, group_size=4)
    build.post(journal, *(build.delivery(n, size=size) for n, size in enumerate(sizes)))
    waiting = [
        count.size for count in journal.read(group_counts) if count.state == "buffered" for _ in range(count.groups)
    ]
    journal.close()
    sums = {sum(some) for length in range(1, len(waiting) + 1) for some in itertools.combinations(waiting, length)}
    assert 4 not in sums
    assert (sum(sizes) - sum(waiting)) % 4 == 0


def test_groups_of_one_post_are_stored_together_or_not_at_all(small_journal) -> None:
    large = build.delivery(1, 2, content=bytes(300_000))
    assert build.post(small_journal, large, build.delivery(3)) == [None, ("queued",)]
    assert small_journal.read(read_books)["groups"]["received"] == 1
    assert build.post(small_journal, large) == [None], "what was not stored is no repeat"


def test_a_repeat_needs_no_room(small_journal) -> None:
    large = build.delivery(1, content=bytes(300_000))
    assert build.post(small_journal, large) == [("queued",)]
    assert build.post(small_journal, large, build.delivery(2, content=bytes(300_000))) == [("queued",), None]


def test_only_a_waiting_trainer_takes_the_room_kept_for_replay(small_journal) -> None:
    for step in range(3):
        build.post(small_journal, build.delivery(step, content=bytes(80_000)))
        small_journal.write(take_batch, step, 2, {})
        small_journal.write(record_progress, ProgressReport(steps_trained=step + 1))
    new = build.delivery(9, content=bytes(100_000))
    assert build.post(small_journal, new) == [None]
    assert small_journal.read(kept_batches) == 3
    assert build.post(small_journal, new, evict=True) == [("queued",)]
    assert small_journal.read(kept_batches) == 2, "the oldest went"
    books = small_journal.read(read_books)
    assert (books["groups"]["trained"], books["groups"]["replay_evicted"]) == (3, 1)
    assert build.balanced(books)


def test_when_nothing_can_be_given_up_there_is_no_room(small_journal) -> None:
    build.post(small_journal, build.delivery(1, content=bytes(300_000)))
    assert build.post(small_journal, build.delivery(2, content=bytes(300_000)), evict=True) == [None]


def test_refused_groups_are_counted_by_reason(journal) -> None:
    refused = (RefusedGroup("tokens", 4), RefusedGroup("tokens", 2), RefusedGroup("size", 0))
    build.post(journal, PostedGroups(refused=refused))
    books = journal.read(read_books)
    assert (books["groups"]["refused"], books["rollouts"]["refused"]) == (
        {"tokens": 2, "size": 1},
        {"tokens": 6, "size": 0},
    )
