"""A full journal delays posts until there is room."""

import asyncio

import pytest

LARGE = "x" * 20_000
LIMIT = 400_000


async def fill(api, build) -> int:
    """Send groups of 20 kB until one is answered 503, after it was held. Returns how many were acknowledged."""
    accepted = 0
    while (await send(api, build, accepted)).status_code == 200:
        accepted += 1
    return accepted


async def send(api, build, number: int):
    return await api.http.post("/scored_data", json=build.group(first_token=number, images=LARGE))


async def held(api, build, number: int) -> asyncio.Task:
    """A POST that waits for room."""
    sending = asyncio.create_task(send(api, build, number))
    async with asyncio.timeout(60):
        while not api.service.held_posts:
            assert not sending.done(), (await sending).text
            await asyncio.sleep(0.01)
    return sending


async def test_a_client_that_waited_in_vain_is_told_to_retry(start_api, build) -> None:
    async with start_api(max_bytes=LIMIT, hold_seconds=0.1) as api:
        await api.begin(num_steps=1000)
        await api.get("/batch?step=0")
        accepted = await fill(api, build)
        answer = await send(api, build, 99)
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
async def test_a_held_post_is_answered_as_soon_as_there_is_room(start_api, build, make_room) -> None:
    async with start_api(max_bytes=LIMIT, hold_seconds=0.1) as api:
        await api.begin(num_steps=1000)
        await fill(api, build)
        await api.get("/batch?step=0")
        api.service._intake._hold_seconds = 20
        sending = await held(api, build, 100)
        path, body = make_room
        await api.post(path, build.trainer_registration(**body) if path == "/register" else body)
        async with asyncio.timeout(60):
            assert (await sending).status_code == 200
        assert api.service.held_posts == 0


async def test_a_waiting_trainer_is_never_locked_out_by_kept_groups(start_api, build) -> None:
    """The journal holds nothing but trained batches and two queued groups: the batch needs a third one."""
    async with start_api(max_bytes=LIMIT, hold_seconds=20) as api:
        await api.begin(num_steps=1000, batch_size=6)
        number = 0
        for step in range(100):
            for _ in range(3):
                sending = asyncio.create_task(send(api, build, number))
                number += 1
                while not sending.done() and not api.service.held_posts:
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
                await send(api, build, number)
                number += 1
        books = await api.books()
        assert books["groups"]["replay_evicted"] > 0
        assert books["groups"]["trained"] == 3 * step
        assert len((await waiting)["batch"]) == 3


async def test_a_full_disk_delays_posts_too_and_is_reported(start_api, build) -> None:
    """SQLite's own page limit gives the error code of a full disk; test_main.py fills a real one."""
    async with start_api(hold_seconds=0.1) as api:
        await api.begin(num_steps=1000)
        sql = api.service.journal._database._writer
        sql.execute("PRAGMA max_page_count = 60")
        accepted = await fill(api, build)
        assert "cannot grow: the disk is full" in (api.service.unready() or "")
        long_report = {"state": "working", "reason": "x" * 1000}
        answers = [await api.http.put("/rl/lease/environment", json=long_report | {"id": f"e{n}"}) for n in range(20)]
        assert answers[-1].status_code == 503
        held_ids = [lease["id"] for lease in api.service.leases.to_wire() if lease["state"] == "working"]
        assert "e19" in held_ids, "who speaks is alive, also when it cannot be written"
        api.service._intake._hold_seconds = 20
        sending = await held(api, build, 100)
        sql.execute("PRAGMA max_page_count = 1000")
        async with asyncio.timeout(60):
            assert (await sending).status_code == 200
        assert (await api.http.put("/rl/lease/environment", json=long_report | {"id": "e19", "index": 1})).is_success
        assert api.service.unready() is None
        assert api.service.status()["queue_size"] == accepted + 1 > 3
