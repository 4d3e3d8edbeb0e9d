"""What the journal keeps, and what it says when it cannot."""

import sqlite3

import pytest

from tinker_atropos.errors import ExitCode, InternalError
from tinker_atropos.trajectory_api.journal import FILE_NAME, ROWS_KEPT, Journal, JournalError
from tinker_atropos.trajectory_api.records import ReceivedGroup
from tinker_atropos.trajectory_api.requests import MetricsReport, ProgressReport, Registration

MAX_BYTES = 2**28


def received(number: int, size: int = 2, content: bytes | None = None) -> ReceivedGroup:
    content = content or b'{"number":%d}' % number
    return ReceivedGroup(0, size, content, gzipped=False, content_hash=b"")


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path, MAX_BYTES)
    yield journal
    journal.close()


async def test_a_restart_keeps_everything(start_api, build) -> None:
    async with start_api() as api:
        env_id = await api.begin(num_steps=10)
        await api.post("/scored_data_list", [build.group(first_token=number) for number in range(5)])
        await api.post("/scored_data", build.group(size=1))
        await api.get("/batch")
        await api.post("/rl/progress", {"steps_trained": 1})
        await api.lease("environment", "failed", "it broke")
        await api.post("/rl/metrics", {"step": 1, "metrics": {"a": 1}, "source": "runner"})
        before = [await api.get("/status"), await api.get("/status-env", {"env_id": env_id}), await api.get("/info")]
    async with start_api() as api:
        assert [
            await api.get("/status"),
            await api.get("/status-env", {"env_id": env_id}),
            await api.get("/info"),
        ] == before
        assert (await api.lease("trainer", "working"))["peer"] == {"state": "failed", "reason": "it broke"}
        assert len((await api.get("/rl/metrics"))["records"]) == 1
        assert [group["tokens"][0][0] for group in (await api.get("/batch"))["batch"]] == [2, 3]
        assert (await api.post("/scored_data", build.group(size=1)))["buffer_size"] == 0
        assert (await api.post("/register-env", build.env_registration()))["wandb_name"] == "sort_1"


async def test_a_silent_peer_gets_its_time_again_after_a_restart(start_api) -> None:
    async with start_api() as api:
        await api.lease("trainer", "working")
    async with start_api() as api:
        assert api.service.over_reason() is None
        api.clock.now += 15.1
        assert (
            api.service.over_reason() == "the trainer is lost: no heartbeat from the trainer for more than 15 seconds"
        )


async def test_heartbeats_of_the_same_state_are_not_written(start_api) -> None:
    async with start_api() as api:
        await api.lease("trainer", "working")
        before = api.service.journal._writer.total_changes
        await api.lease("trainer", "working")
        assert api.service.journal._writer.total_changes == before
        await api.lease("trainer", "done")
        assert api.service.journal._writer.total_changes > before


def test_groups_of_one_request_are_stored_together_or_not_at_all(tmp_path) -> None:
    journal = Journal(tmp_path, 200_000)
    with pytest.raises(JournalError, match="reached its limit of 200000 bytes"):
        journal.add_groups([received(1), received(2, content=bytes(300_000))], 0.0)
    assert journal.group_counts() == []
    journal.add_groups([received(1)], 0.0)
    assert journal.take_batch(2, {}) == [b'{"number":1}']
    journal.close()


def test_trained_groups_leave_no_content_behind(journal) -> None:
    rounds = ROWS_KEPT // 100 + 2
    for step in range(1, rounds + 1):
        journal.add_groups([received(n, content=bytes(10_000)) for n in range(100)], 0.0)
        journal.take_batch(200, {})
        journal.record_progress(ProgressReport(steps_trained=step))
    assert journal.group_counts() == []
    assert journal.used_bytes() < 3_000_000
    with sqlite3.connect(journal.path) as sql:
        rows, contents = sql.execute("SELECT count(*), count(content) FROM groups").fetchone()
    assert (rows, contents) == (ROWS_KEPT + 1, 1)


def test_delivered_groups_stay_until_they_are_trained(journal) -> None:
    journal.add_groups([received(n) for n in range(4)], 0.0)
    journal.take_batch(4, {})
    assert [(count.state, count.groups) for count in journal.group_counts()] == [("delivered", 2), ("queued", 2)]
    with sqlite3.connect(journal.path) as sql:
        assert sql.execute("SELECT batch, content FROM groups WHERE state = 'delivered'").fetchall() == [
            (1, b'{"number":0}'),
            (1, b'{"number":1}'),
        ]


def test_old_metrics_make_room(journal) -> None:
    journal._writer.execute("PRAGMA synchronous = OFF")  # a thousand commits
    for step in range(ROWS_KEPT + 2):
        journal.add_metrics(MetricsReport(step=step, metrics={}, source="s"), 0.0)
    assert [record["seq"] for record in journal.metrics_after(0)] == list(range(3, ROWS_KEPT + 3))


def test_a_new_registration_begins_at_its_starting_step(journal) -> None:
    registration = Registration(
        wandb_group="g",
        wandb_project="p",
        batch_size=4,
        max_token_len=9,
        checkpoint_dir="",
        save_checkpoint_interval=1,
        starting_step=7,
        num_steps=9,
    )
    journal.record_progress(ProgressReport(steps_trained=8, training_done=True))
    journal.register(registration)
    assert journal.run_state().progress == ProgressReport(steps_trained=7)


# A journal that does not open.


def test_a_file_that_is_no_journal(tmp_path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, and long enough to be read as a header of one....." * 20)
    with pytest.raises(InternalError, match=r"journal\.sqlite does not work: file is not a database") as caught:
        Journal(tmp_path, MAX_BYTES)
    assert caught.value.exit_code == ExitCode.FAILURE


def test_a_journal_of_another_version(tmp_path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as sql:
        sql.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="has schema 99, this version reads 1: use another folder"):
        Journal(tmp_path, MAX_BYTES)


def test_a_folder_that_cannot_be_made(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot make the journal's folder"):
        Journal(tmp_path / "file" / "folder", MAX_BYTES)


# A journal that is full.


async def fill(api, build, message: str) -> int:
    """Send groups until the api answers 503. Returns how many it has acknowledged."""
    accepted = 0
    while (answer := await api.http.post("/scored_data", json=build.group(images="x" * 20_000))).status_code == 200:
        accepted += 1
    assert answer.status_code == 503
    assert message in answer.json()["detail"]
    assert message in (api.service.unready() or "")
    assert sum(count.groups for count in api.service.journal.group_counts()) == accepted > 2
    return accepted


async def test_a_journal_at_its_limit_answers_503_until_the_trainer_has_made_room(start_api, build) -> None:
    async with start_api(max_bytes=400_000) as api:
        await api.begin(num_steps=1000)
        await fill(api, build, "has reached its limit of 400000 bytes")
        assert len((await api.get("/batch"))["batch"]) == 2
        await api.post("/rl/progress", {"steps_trained": 1})
        await api.post("/scored_data", build.group(images="x" * 20_000))
        assert api.service.unready() is None


async def test_a_full_disk_answers_503_until_there_is_space(start_api, build) -> None:
    """SQLite's own page limit gives the error code of a full disk; test_main.py fills a real one."""
    async with start_api() as api:
        await api.begin(num_steps=1000)
        api.service.journal._writer.execute("PRAGMA max_page_count = 50")
        accepted = await fill(api, build, "cannot grow: the disk is full")
        long_report = {"state": "working", "reason": "x" * 100_000}
        assert (await api.http.put("/rl/lease/trainer", json=long_report)).status_code == 503
        assert api.service.lease("trainer").state == "working", "who speaks is alive, also when it cannot be written"
        api.service.journal._writer.execute("PRAGMA max_page_count = 1000")
        await api.lease("trainer", "working")
        await api.post("/scored_data", build.group())
        assert api.service.unready() is None
        assert api.service.status()["queue_size"] == accepted + 1
