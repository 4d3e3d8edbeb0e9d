"""Every item once: dealt to one process, then trained, dropped for a reason, or under way, whatever is killed when."""

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from tinker_atropos.trajectory_api.messages.requests import MAX_STATE, ItemBooks, ItemsRequest, ProgressReport
from tinker_atropos.trajectory_api.store.batches import drop_groups, take_batch
from tinker_atropos.trajectory_api.store.items import (
    FORGOTTEN,
    MOST_UNDER_WAY,
    DataPosition,
    continue_from,
    deal,
    item_books,
    position_at,
)
from tinker_atropos.trajectory_api.store.journal import Journal
from tinker_atropos.trajectory_api.store.run_record import record_progress, register

BATCH = 4
"""Rollouts: two groups of two."""


def dealt(journal: Journal, holder: str, count: int, live: frozenset[str] = frozenset(), **told: object) -> list[int]:
    query = "SELECT position FROM items WHERE holder = ?"
    held = journal.read(lambda sql: [row[0] for row in sql.execute(query, (holder,))])
    request = {"id": holder, "count": count, "held": held, **told}
    return journal.write(deal, ItemsRequest(**request), count, {holder, *live})


def sent(journal: Journal, position: int, holder: str, key: str | None = None) -> bool:
    """Whether the group counts."""
    before = len(groups_of(journal))
    build.post(journal, build.delivery(position, position=position, holder=holder, key=key or f"{holder}/{position}"))
    return len(groups_of(journal)) == before + 1


def groups_of(journal: Journal) -> list[int]:
    return journal.read(lambda sql: [row[0] for row in sql.execute("SELECT position FROM groups ORDER BY id")])


def test_processes_get_shares_of_one_order_and_what_a_lost_one_held_comes_first(journal) -> None:
    assert dealt(journal, "a", 3) == [0, 1, 2]
    assert dealt(journal, "b", 2, frozenset("a")) == [3, 4]
    assert sent(journal, 1, "a")
    assert dealt(journal, "c", 3, frozenset("b")) == [0, 2, 5], "a is gone: what it had sent is not dealt again"
    assert journal.read(item_books) | {"epoch": 0} == ItemBooks(
        seen=6, trained=0, dropped={}, under_way=6, again=2, epoch=0, epoch_size=None
    )


def test_a_group_of_an_item_that_is_another_ones_by_now_is_dropped(journal) -> None:
    assert dealt(journal, "a", 1) == dealt(journal, "b", 1) == [0]
    assert not sent(journal, 0, "a")
    assert sent(journal, 0, "b")
    assert not sent(journal, 0, "b", "once more")


def test_an_item_without_a_group_is_dropped_by_reason_unless_it_is_another_ones(journal) -> None:
    dealt(journal, "a", 3)
    ended = [{"position": 0, "reason": "equal"}, {"position": 1, "reason": "held_out"}]
    assert dealt(journal, "a", 1, ended=ended, epoch_size=2) == [3]
    dealt(journal, "b", 0, frozenset("a"), ended=[{"position": 2, "reason": "equal"}])
    assert journal.read(item_books) == ItemBooks(
        seen=4, trained=0, dropped={"equal": 1, "held_out": 1}, under_way=2, again=0, epoch=1, epoch_size=2
    )


def test_what_a_process_was_dealt_by_an_answer_that_it_did_not_get_is_dealt_again(journal) -> None:
    assert dealt(journal, "a", 2) == [0, 1]
    assert dealt(journal, "a", 2) == [2, 3]
    assert dealt(journal, "a", 3, held=[0, 1]) == [2, 3, 4]


def test_one_process_cannot_take_all_items(journal) -> None:
    taken = [len(dealt(journal, "a", 1024)) for _ in range(5)]
    assert (taken, sum(taken)) == ([1024] * 4 + [0], MOST_UNDER_WAY)
    assert dealt(journal, "b", 1, frozenset("a")) == [MOST_UNDER_WAY]


def test_a_batch_is_in_the_order_of_its_items_whichever_was_made_first(journal) -> None:
    dealt(journal, "a", 3)
    for position in (2, 0, 1):
        sent(journal, position, "a")
    assert journal.write(take_batch, 0, 6, {}).contents == (b"0", b"1", b"2")


@pytest.mark.parametrize("held", [range(0), range(100), range(0, 3000, 2), [0, *range(2000, 2100, 3)]])
def test_a_position_fits_into_a_checkpoint_and_says_what_is_open(journal, held) -> None:
    for _ in range(3):
        dealt(journal, "a", 1000)
    ended = [{"position": each, "reason": "equal"} for each in range(3000) if each not in set(held)]
    dealt(journal, "a", 0, ended=ended)
    text = journal.write(position_at, 0)
    found = DataPosition.parse(text)
    assert (len(text) <= MAX_STATE, found.next) == (True, 3000)
    assert found.open_positions() == list(held)
    assert found.dropped.get(FORGOTTEN) is None


def test_the_oldest_open_items_are_given_up_where_a_checkpoint_has_no_room(journal) -> None:
    held = sorted(random.Random(1).sample(range(4096), 2048))
    for _ in range(4):
        dealt(journal, "a", 1024)
    dealt(journal, "a", 0, ended=[{"position": p, "reason": "equal"} for p in range(4096) if p not in set(held)])
    found = DataPosition.parse(text := journal.write(position_at, 0))
    kept = found.open_positions()
    assert len(text) <= MAX_STATE
    assert 0 < len(kept) < len(held)
    assert kept == held[-len(kept) :]
    assert found.dropped[FORGOTTEN] == len(held) - len(kept)


@pytest.mark.parametrize("text", ["", "{}", '{"next": -1}', '{"next": 1, "open": "?"}', "[]"])
def test_what_is_no_position_is_refused(text) -> None:
    with pytest.raises(ValueError, match="not a position in the data"):
        DataPosition.parse(text)


class Schedules(RuleBasedStateMachine):
    """One run through kills of environments, of the trainer and of the pod, drops, and checkpoints. `fates` is what the
    weights that there are have seen: what a lost step trained is open again.
    """

    processes = Bundle("processes")
    names = itertools.count()
    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, set[int]] = {}
        self.late: list[tuple[int, str]] = []
        self.fates: dict[int, str] = {}
        self.step = self.saved = 0
        self.saved_text: str | None = None
        self.saved_fates: dict[int, str] = {}
        self.new_pod()

    def new_pod(self) -> None:
        self.journal = Journal(self.folder / str(next(self.names)), 2**28)
        self.journal.write(register, build.registration(starting_step=self.saved, items=self.saved_text), [])

    def teardown(self) -> None:
        self.journal.close()

    @rule(target=processes)
    def a_process_starts(self) -> str:
        name = f"p{next(self.names)}"
        self.live[name] = set()
        return name

    @rule(name=processes, count=st.integers(1, 5))
    def it_asks(self, name: str, count: int) -> None:
        if name not in self.live:
            return
        positions = dealt(self.journal, name, count, frozenset(self.live), epoch_size=7)
        held = set().union(*self.live.values())
        for position in positions:
            assert position not in self.fates, f"{position} is {self.fates[position]}, and dealt again"
            assert position not in held, f"{position} is dealt twice"
            assert position not in groups_of(self.journal)
        self.live[name] |= set(positions)

    @rule(name=processes)
    def it_sends_a_group(self, name: str) -> None:
        if held := self.live.get(name):
            position = held.pop()
            assert sent(self.journal, position, name, f"{next(self.names)}")

    @rule(name=processes)
    def it_drops_an_item(self, name: str) -> None:
        if held := self.live.get(name):
            position = held.pop()
            dealt(self.journal, name, 0, frozenset(self.live), ended=[{"position": position, "reason": "equal"}])
            self.fates[position] = "equal"

    @rule(name=processes)
    def it_is_killed_with_a_group_on_its_way(self, name: str) -> None:
        self.late += [(position, name) for position in self.live.pop(name, ())]

    @precondition(lambda self: self.late)
    @rule()
    def a_late_group_arrives(self) -> None:
        position, name = self.late.pop()
        held = set().union(*(held for holder, held in self.live.items() if holder != name))
        self.live.get(name, set()).discard(position)  # it was dealt to the same process once more
        counts = position not in self.fates and position not in held and position not in groups_of(self.journal)
        assert sent(self.journal, position, name, f"{next(self.names)}") == counts

    @rule(stale=st.booleans())
    def the_trainer_takes_a_step(self, stale: bool) -> None:
        batch = self.journal.write(take_batch, self.step, BATCH, {})
        if batch.missing:
            return
        trained = [int(content) for content in batch.contents]
        if stale:
            self.journal.write(drop_groups, batch.group_ids[:1], "stale")
            self.fates[trained[0]] = "stale"
            return
        self.step += 1
        self.fates |= dict.fromkeys(trained, f"trained {self.step}")
        self.journal.write(record_progress, ProgressReport(steps_trained=self.step))

    @rule()
    def a_checkpoint_is_saved(self) -> None:
        self.saved, self.saved_text = self.step, self.journal.write(position_at, self.step)
        self.saved_fates = dict(self.fates)
        self.journal.write(record_progress, ProgressReport(steps_trained=self.step, checkpoint_step=self.step))

    @rule()
    def the_trainer_restarts(self) -> None:
        """In its pod: the journal knows what was dropped since the checkpoint, and has the batches to replay."""
        lost = [
            each for each, fate in self.fates.items() if fate.startswith("trained") and each not in self.saved_fates
        ]
        for position in lost:
            del self.fates[position]
        self.step = self.saved
        self.journal.write(register, build.registration(starting_step=self.saved, items=self.saved_text), [])

    @rule(environments_too=st.booleans())
    def the_pod_is_lost(self, environments_too: bool) -> None:
        """Its journal with it: all since the checkpoint is forgotten. Environments in pods of their own may go on."""
        self.journal.close()
        self.fates, self.step = dict(self.saved_fates), self.saved
        self.late += [(position, name) for name, held in self.live.items() for position in held]
        self.live = {} if environments_too else {name: set() for name in self.live}
        self.new_pod()

    @invariant()
    def every_item_is_in_one_place(self) -> None:
        books = self.journal.read(item_books)
        assert books["seen"] == books["trained"] + sum(books["dropped"].values()) + books["under_way"]
        assert books["under_way"] == books["seen"] - len(self.fates)
        assert books["trained"] == sum(fate.startswith("trained") for fate in self.fates.values())


def test_whatever_is_killed_each_item_is_trained_dropped_or_under_way_exactly_once(tmp_path) -> None:
    Schedules.folder = tmp_path
    run_state_machine_as_test(Schedules, settings=settings(max_examples=30, stateful_step_count=40, deadline=None))


def test_what_is_newer_than_the_checkpoint_that_is_left_comes_again(journal) -> None:
    """The newest checkpoint is gone, and the journal has already forgotten the groups that it covered."""
    journal.write(register, build.registration(), [])
    dealt(journal, "a", 4)
    first = journal.write(position_at, 0)
    for position in range(2):
        sent(journal, position, "a")
    journal.write(take_batch, 0, BATCH, {})
    journal.write(record_progress, ProgressReport(steps_trained=1, checkpoint_step=1))
    journal.write(register, build.registration(starting_step=0, items=first), [])
    assert dealt(journal, "b", 4, frozenset("a")) == [0, 1, 4, 5], "2 and 3 are still a's"
    assert journal.read(item_books)["trained"] == 0


def test_nothing_is_known_of_data_before_the_first_checkpoint(journal) -> None:
    journal.write(continue_from, None)
    assert dealt(journal, "a", 2) == [0, 1]
