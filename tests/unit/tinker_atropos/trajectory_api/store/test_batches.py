"""Batches by step: the same one each time, kept until covered, filled up when groups are dropped."""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from tinker_atropos.trajectory_api.messages.requests import ProgressReport
from tinker_atropos.trajectory_api.store.batches import QueuedGroup, drop_groups, first_exact, form_batch, take_batch
from tinker_atropos.trajectory_api.store.books import kept_batches, read_books
from tinker_atropos.trajectory_api.store.journal import Journal, used_bytes
from tinker_atropos.trajectory_api.store.run_record import (
    finish_delivered,
    record_progress,
    register,
    run_state,
    take_next_batch,
)


def trained(steps: int, checkpoint: int | None = None) -> ProgressReport:
    return ProgressReport(steps_trained=steps, checkpoint_step=checkpoint)


def totals(journal) -> dict[str, int]:
    books = journal.read(read_books)["groups"]
    return {state: books[state] for state in ("queued", "delivered", "trained")} | books["dropped"]


def test_a_batch_is_returned_unchanged(journal) -> None:
    build.post(journal, build.delivery(*range(5)))
    first = journal.write(take_batch, 0, 4, {})
    assert first.contents == (b"0", b"1")
    assert journal.write(take_batch, 1, 4, {}).contents == (b"2", b"3")
    assert journal.write(take_batch, 0, 4, {}) == first
    assert totals(journal) == {"queued": 1, "delivered": 4, "trained": 0}


def test_while_groups_are_missing_no_batch_is_taken(journal) -> None:
    build.post(journal, build.delivery(1))
    assert (journal.write(take_batch, 0, 4, {}).missing, totals(journal)["queued"]) == (4, 1)


def test_a_batch_that_lost_groups_is_filled_up_in_queue_order(journal) -> None:
    build.post(journal, build.delivery(*range(4)))
    first = journal.write(take_batch, 0, 4, {})
    assert journal.write(drop_groups, first.group_ids[:1], "stale") == 1
    assert journal.write(drop_groups, [*first.group_ids[:1], 99], "stale") == 0, "asking again drops nothing"
    again = journal.write(take_batch, 0, 4, {})
    assert again.contents == (b"1", b"2")
    assert totals(journal) == {"queued": 1, "delivered": 2, "trained": 0, "stale": 1}


def test_a_batch_waits_when_nothing_can_replace_dropped_groups(journal) -> None:
    build.post(journal, build.delivery(*range(2)))
    journal.write(drop_groups, journal.write(take_batch, 0, 4, {}).group_ids[:1], "stale")
    assert journal.write(take_batch, 0, 4, {}).missing == 2
    build.post(journal, build.delivery(7))
    assert journal.write(take_batch, 0, 4, {}).contents == (b"1", b"7")


def test_groups_in_the_queue_are_not_dropped_by_id(journal) -> None:
    build.post(journal, build.delivery(1))
    assert journal.write(drop_groups, [1], "stale") == 0


def test_odd_sizes_are_regrouped_when_the_rest_cannot_be_filled(journal) -> None:
    build.post(journal, build.delivery(1, size=1), build.delivery(3, size=3))
    first = journal.write(take_batch, 0, 4, {})
    journal.write(drop_groups, first.group_ids[:1], "stale")
    build.post(journal, build.delivery(4, size=4))
    assert journal.write(take_batch, 0, 4, {}).contents == (b"4",)
    assert totals(journal) == {"queued": 1, "delivered": 1, "trained": 0, "stale": 1}


def test_a_trained_batch_is_kept_until_a_checkpoint_covers_it_and_counted_once(journal) -> None:
    build.post(journal, build.delivery(*range(6)))
    batches = []
    for step in range(3):
        batches.append(journal.write(take_batch, step, 4, {}))
        journal.write(record_progress, trained(step + 1))
    assert totals(journal) == {"queued": 0, "delivered": 0, "trained": 6}
    journal.write(record_progress, trained(3, checkpoint=1))
    assert [journal.write(take_batch, step, 4, {}) for step in (1, 2)] == batches[1:], "a replay"
    journal.write(record_progress, trained(2))
    assert (journal.read(run_state).progress.steps_trained, totals(journal)["trained"]) == (3, 6)
    journal.write(record_progress, trained(3, checkpoint=3))
    assert (journal.read(kept_batches), totals(journal)["trained"]) == (0, 6)


def test_covered_content_is_removed_from_disk(journal) -> None:
    for step in range(20):
        build.post(journal, build.delivery(step, content=bytes(100_000)))
        journal.write(take_batch, step, 2, {})
        journal.write(record_progress, trained(step + 1, checkpoint=step))
    assert journal.read(used_bytes) < 500_000
    assert totals(journal)["trained"] == 20


def test_a_group_dropped_in_a_replay_is_no_longer_trained(journal) -> None:
    build.post(journal, build.delivery(*range(3)))
    batch = journal.write(take_batch, 0, 4, {})
    journal.write(record_progress, trained(1))
    journal.write(drop_groups, batch.group_ids[:1], "stale")
    assert journal.write(take_batch, 0, 4, {}).contents == (b"1", b"2")
    assert totals(journal) == {"queued": 0, "delivered": 1, "trained": 1, "stale": 1}
    journal.write(record_progress, trained(1))
    assert totals(journal) == {"queued": 0, "delivered": 0, "trained": 2, "stale": 1}


# A trainer that does not name its steps.


def test_asking_for_the_next_batch_means_the_previous_ones_are_trained(journal) -> None:
    build.post(journal, build.delivery(*range(4)))
    for step in range(2):
        journal.write(finish_delivered)
        assert journal.read(run_state).progress.steps_trained == step
        assert journal.write(take_next_batch, 4, {}).group_ids == (2 * step + 1, 2 * step + 2)
    journal.write(finish_delivered)
    assert (totals(journal)["trained"], journal.read(kept_batches)) == (4, 0)
    changes = journal._writer.total_changes
    journal.write(finish_delivered)
    assert journal._writer.total_changes == changes, "who waits asks often"


# A restarted trainer.


@pytest.fixture
def three_steps(journal):
    """Three batches of one group, two of them trained, the first of those covered."""
    journal.write(register, build.registration(batch_size=2), [])
    build.post(journal, build.delivery(*range(4)))
    for step in range(3):
        journal.write(take_batch, step, 2, {})
    journal.write(record_progress, trained(2, checkpoint=1))
    return journal


@pytest.mark.parametrize(
    ("starting_step", "expected"),
    [
        (0, {"queued": 1, "delivered": 2, "trained": 0, "checkpoint_lost": 1}),
        (1, {"queued": 1, "delivered": 2, "trained": 1}),
        (2, {"queued": 1, "delivered": 1, "trained": 2}),
        (3, {"queued": 1, "delivered": 0, "trained": 3}),
    ],
)
def test_a_restarted_trainer_retrains_what_its_checkpoint_lacks(three_steps, starting_step, expected) -> None:
    three_steps.write(register, build.registration(batch_size=2, starting_step=starting_step), [])
    assert totals(three_steps) == expected
    assert build.balanced(three_steps.read(read_books))


def test_a_restarted_trainer_does_without_discarded_groups(three_steps) -> None:
    three_steps.max_bytes = 0
    build.post(three_steps, build.delivery(9), evict=True)
    three_steps.write(register, build.registration(batch_size=2, starting_step=1), [])
    assert totals(three_steps) == {"queued": 1, "delivered": 1, "trained": 1, "replay_evicted": 1}
    assert three_steps.write(take_batch, 1, 2, {}).contents == (b"3",), "the batch is filled from the queue"


@pytest.mark.parametrize(
    ("changes", "dropped"),
    [({"batch_size": 1}, {"larger_than_batch": 1}), ({"vocabulary": 9}, {"outside_vocabulary": 1}), ({}, {})],
)
def test_a_registration_drops_groups_it_cannot_train(journal, changes, dropped) -> None:
    build.post(journal, build.delivery(1))
    journal.write(register, build.registration(**changes), [])
    assert journal.read(read_books)["groups"]["dropped"] == dropped
    assert build.balanced(journal.read(read_books))


# Any events in any order.


class Life(RuleBasedStateMachine):
    """A trainer and an environment with random actions, and SIGKILLs in between."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.open()
        self.sent = self.steps = self.checkpoint = 0
        self.seen: dict[int, int] = {}
        self.journal.write(register, build.registration(), [])

    def open(self) -> None:
        self.journal = Journal(self.folder, 600_000)
        self.journal._writer.execute("PRAGMA synchronous = OFF")

    @rule(size=st.integers(1, 4), evict=st.booleans())
    def send(self, size: int, *, evict: bool) -> None:
        self.sent += 1
        delivery = build.delivery(self.sent, size=size, content=b"%d" % self.sent + b" " * 60_000)
        build.post(self.journal, delivery, delivery, evict=evict)

    @rule(ahead=st.integers(-2, 1))
    def take(self, ahead: int) -> None:
        step = max(self.checkpoint, self.steps + ahead)
        batch = self.journal.write(take_batch, step, 4, {})
        assert batch == self.journal.write(take_batch, step, 4, {})
        assert list(batch.group_ids) == sorted(batch.group_ids)
        for group_id, content in zip(batch.group_ids, batch.contents, strict=True):
            assert self.seen.setdefault(group_id, int(content)) == int(content)
        assert len(set(self.seen.values())) == len(self.seen), "no group came twice"

    @rule(ahead=st.integers(-2, 1), covered=st.booleans())
    def progress(self, ahead: int, *, covered: bool) -> None:
        steps = max(0, self.steps + ahead)
        self.checkpoint = max(self.checkpoint, steps) if covered else self.checkpoint
        self.steps = max(self.steps, steps)
        self.journal.write(record_progress, trained(steps, self.checkpoint if covered else None))

    @rule(ids=st.lists(st.integers(1, 20), max_size=4))
    def drop(self, ids: list[int]) -> None:
        self.journal.write(drop_groups, ids, "stale")

    @rule(back=st.integers(0, 2))
    def live_again(self, back: int) -> None:
        self.steps = self.checkpoint = max(0, self.steps - back)
        self.journal.write(register, build.registration(starting_step=self.steps), [])

    @rule()
    def ask_without_a_step(self) -> None:
        self.journal.write(finish_delivered)
        self.journal.write(take_next_batch, 4, {})
        self.steps = self.journal.read(run_state).progress.steps_trained
        self.checkpoint = self.journal.read(run_state).covered_step

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.open()

    @invariant()
    def books_balance(self) -> None:
        books = self.journal.read(read_books)
        assert build.balanced(books), books
        assert books["groups"]["duplicates"] <= books["groups"]["received"]

    def teardown(self) -> None:
        self.journal.close()


def test_the_totals_balance_whatever_happens(tmp_path_factory) -> None:
    def life() -> Life:
        return Life(tmp_path_factory.mktemp("journal"))

    run_state_machine_as_test(life, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))


SIZES = st.lists(st.integers(1, 9), max_size=9)


def queue_of(sizes: list[int], envs: list[int | None] | None = None) -> list[QueuedGroup]:
    return [QueuedGroup(10 + n, envs[n] if envs else 0, size) for n, size in enumerate(sizes)]


@given(SIZES, st.integers(1, 24))
def test_first_exact_is_the_lexicographically_oldest_choice(sizes: list[int], target: int) -> None:
    every_choice = [
        list(positions)
        for length in range(1, len(sizes) + 1)
        for positions in combinations(range(len(sizes)), length)
        if sum(sizes[p] for p in positions) == target
    ]
    # Lexicographic on "taken or left", the oldest position first.
    expected = max(every_choice, key=lambda chosen: [n in chosen for n in range(len(sizes))], default=None)
    assert first_exact(sizes, target) == expected


@given(SIZES, st.integers(1, 16))
def test_batches_partition_the_queue(sizes: list[int], batch_size: int) -> None:
    queue = queue_of(sizes)
    taken: list[QueuedGroup] = []
    waiting = list(queue)
    while (batch := form_batch(waiting, batch_size, {})) is not None:
        assert sum(group.size for group in batch) == batch_size
        assert batch == sorted(batch, key=lambda group: group.group_id)
        taken += batch
        waiting = [group for group in waiting if group not in batch]
    assert sorted(taken + waiting, key=lambda group: group.group_id) == queue


@pytest.mark.parametrize(
    ("envs", "expected"),
    [
        ([0, 0, 1, 1], [(10, 0), (12, 1)]),  # a minimum share comes before older groups
        ([0, 0], [(10, 0), (11, 0)]),  # that of a silent environment blocks nothing
        ([None, None], [(10, None), (11, None)]),  # groups without an environment are batched too
    ],
)
def test_a_minimum_share_is_taken_first_if_it_is_there(envs, expected) -> None:
    batch = form_batch(queue_of([2] * len(envs), envs), 4, {1: 0.5})
    assert [(group.group_id, group.env_id) for group in batch or ()] == expected
