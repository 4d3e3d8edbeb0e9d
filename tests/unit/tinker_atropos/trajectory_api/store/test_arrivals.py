"""Groups are stored once each, in order, and within the limit."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tinker_atropos.trajectory_api.messages.records import PostedGroups, RefusedGroup, RegisteredEnv
from tinker_atropos.trajectory_api.messages.requests import EnvRegistration, ProgressReport
from tinker_atropos.trajectory_api.store.arrivals import REPEAT_SECONDS
from tinker_atropos.trajectory_api.store.journal import Journal


@pytest.fixture
def small_journal(tmp_path):
    journal = Journal(tmp_path / "small", 400_000)
    yield journal
    journal.close()


def test_a_repeat_is_answered_like_the_first_and_counted(journal, build) -> None:
    assert journal.add_deliveries([build.delivery(1, 2)], 0.0) == [("queued", "queued")]
    assert journal.add_deliveries([build.delivery(2, 3), build.delivery(3)], 1.0) == [("queued", "queued"), ("queued",)]
    books = journal.books()
    assert (books["groups"]["received"], books["groups"]["duplicates"], books["groups"]["queued"]) == (3, 2, 3)
    assert (books["rollouts"]["received"], books["rollouts"]["duplicates"]) == (6, 4)


@pytest.mark.parametrize(("later", "received"), [(REPEAT_SECONDS, 1), (REPEAT_SECONDS + 1, 2)])
def test_repeats_are_remembered_for_longer_than_any_client_waits(journal, build, later, received) -> None:
    journal.add_deliveries([build.delivery(1)], 1000.0)
    journal.add_deliveries([build.delivery(1)], 1000.0 + later)
    assert journal.books()["groups"]["received"] == received


def test_a_repeat_is_recognized_after_its_group_was_trained_or_dropped(journal, build) -> None:
    journal.add_deliveries([build.delivery(1, 2)], 0.0)
    batch = journal.take_batch(0, 4, {})
    journal.drop_groups(batch.group_ids[:1], "stale")
    journal.record_progress(ProgressReport(steps_trained=1, checkpoint_step=1))
    journal.add_deliveries([build.delivery(1, 2)], 1.0)
    assert journal.books()["groups"]["queued"] == 0


def test_a_buffered_repeat_is_answered_as_buffered(journal, build) -> None:
    register_env(journal, group_size=3)
    assert journal.add_deliveries([build.delivery(1)], 0.0) == [("buffered",)]
    assert journal.add_deliveries([build.delivery(1), build.delivery(2, size=1)], 0.0) == [("buffered",), ("buffered",)]
    assert {count.state for count in journal.group_counts()} == {"queued"}


def register_env(journal: Journal, group_size: int) -> None:
    body = EnvRegistration(max_token_length=9, group_size=group_size)
    journal.put_environment(RegisteredEnv(0, "sort_0", connected=True, registration=body))


@given(sizes=st.lists(st.integers(1, 4), max_size=12))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_buffered_groups_leave_as_soon_as_they_sum_to_the_group_size(tmp_path_factory, build, sizes) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal"), 2**28)
    register_env(journal, group_size=4)
    journal.add_deliveries([build.delivery(n, size=size) for n, size in enumerate(sizes)], 0.0)
    waiting = [count.size for count in journal.group_counts() if count.state == "buffered" for _ in range(count.groups)]
    journal.close()
    sums = {sum(some) for length in range(1, len(waiting) + 1) for some in itertools.combinations(waiting, length)}
    assert 4 not in sums
    assert (sum(sizes) - sum(waiting)) % 4 == 0


def test_groups_of_one_post_are_stored_together_or_not_at_all(small_journal, build) -> None:
    large = build.delivery(1, 2, content=bytes(300_000))
    assert small_journal.add_deliveries([large, build.delivery(3)], 0.0) == [None, ("queued",)]
    assert small_journal.books()["groups"]["received"] == 1
    assert small_journal.add_deliveries([large], 0.0) == [None], "what was not stored is no repeat"


def test_a_repeat_needs_no_room(small_journal, build) -> None:
    large = build.delivery(1, content=bytes(300_000))
    assert small_journal.add_deliveries([large], 0.0) == [("queued",)]
    assert small_journal.add_deliveries([large, build.delivery(2, content=bytes(300_000))], 0.0) == [("queued",), None]


def test_only_a_waiting_trainer_takes_the_room_kept_for_replay(small_journal, build) -> None:
    for step in range(3):
        small_journal.add_deliveries([build.delivery(step, content=bytes(80_000))], 0.0)
        small_journal.take_batch(step, 2, {})
        small_journal.record_progress(ProgressReport(steps_trained=step + 1))
    new = build.delivery(9, content=bytes(100_000))
    assert small_journal.add_deliveries([new], 0.0) == [None]
    assert small_journal.kept_batches() == 3
    assert small_journal.add_deliveries([new], 0.0, True) == [("queued",)]
    assert small_journal.kept_batches() == 2, "the oldest went"
    books = small_journal.books()
    assert (books["groups"]["trained"], books["groups"]["replay_evicted"]) == (3, 1)
    assert build.balanced(books)


def test_when_nothing_can_be_given_up_there_is_no_room(small_journal, build) -> None:
    small_journal.add_deliveries([build.delivery(1, content=bytes(300_000))], 0.0)
    assert small_journal.add_deliveries([build.delivery(2, content=bytes(300_000))], 0.0, True) == [None]


def test_refused_groups_are_counted_by_reason(journal) -> None:
    refused = (RefusedGroup("tokens", 4), RefusedGroup("tokens", 2), RefusedGroup("size", 0))
    journal.add_deliveries([PostedGroups(refused=refused)], 0.0)
    books = journal.books()
    assert (books["groups"]["refused"], books["rollouts"]["refused"]) == (
        {"tokens": 2, "size": 1},
        {"tokens": 6, "size": 0},
    )
