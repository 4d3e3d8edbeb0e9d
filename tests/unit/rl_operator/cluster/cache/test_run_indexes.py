"""The queue of a runtime, kept by the changes of a cache: never more than the limit, and no run waits in vain."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.rl_operator.samples import make_run
from tests.unit.rl_operator.status.builders import make_pod, ready

from rl_operator.api.runtime import Limits
from rl_operator.api.status_fields import QueueStatus, RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.cluster.cache.resource_cache import Key
from rl_operator.cluster.cache.run_indexes import RuntimeQueues, Unstarted
from rl_operator.operator_errors import ConflictError, ForbiddenError, TargetUnreachableError
from rl_operator.status.attempt.run_admission import has_room, order_of, queue_place
from rl_operator.status.attempt.view import QueuePosition

WAITING = RunStatus(phase="Pending", queue=QueueStatus(place=1, active=1, limit=1))
ACTIVE = RunStatus(phase="Running", start_time="2026-05-01T12:00:00Z", attempt=1)
GAVE_BACK = ACTIVE.with_changes(
    phase="Pending", queue=QueueStatus(place=1, active=1, limit=1, gave_back="2026-05-01T12:01:00Z")
)
OVER = RunStatus(phase="Succeeded", start_time="2026-05-01T12:00:00Z", attempt=1)


def run(name: str, status: RunStatus = WAITING, created: int = 0, **spec: Any) -> TrainingRun:
    made = make_run(**spec)
    metadata = made.metadata.with_changes(name=name, creation_timestamp=f"2026-05-01T12:00:{created:02}Z")
    return made.with_changes(metadata=metadata, status=status)


def key(name: str) -> Key:
    return ("team-a", name)


class RecordedLine:
    """Slots with limits that a test changes, and with a record of who was told what."""

    def __init__(self, limit: int | None = 1, share: int | None = None) -> None:
        self.limit = limit
        self.share = share
        self.started: list[str] = []
        self.moved: list[str] = []
        self.queues = RuntimeQueues(
            lambda _: Limits(max_active_runs=self.limit, max_active_runs_per_namespace=self.share, max_priority=9)
        )
        self.queues.on_change(
            start=lambda key: self.started.append(key[1]), moved=lambda key: self.moved.append(key[1])
        )

    @property
    def waiting(self) -> list[str]:
        return [name for _, name in self.queues.waiting("tiny")]

    def hold(self, *runs: TrainingRun) -> None:
        for each in runs:
            self.queues.changed(each.key, each)

    def position(self, run: TrainingRun) -> tuple[int, int]:
        """How many are active, and how many wait before it."""
        found = self.queues.queue_position(run)
        assert found is not None
        return found.active, found.before

    def heard(self) -> list[str]:
        started, self.started = self.started, []
        return started


FIRST, SECOND = run("first", created=1), run("second", created=2)


@pytest.fixture
def slots() -> RecordedLine:
    return RecordedLine()


def test_without_a_limit_there_is_no_queue() -> None:
    assert RecordedLine(limit=None).queues.queue_position(run("a")) is None


def test_the_position_of_a_run(slots: RecordedLine) -> None:
    slots.hold(run("active", ACTIVE), FIRST, SECOND)
    assert slots.position(SECOND) == (1, 1)
    assert slots.position(run("urgent", created=9, priority=1)) == (1, 0)
    assert slots.position(run("active", ACTIVE)) == (0, 0), "of the others"
    assert slots.waiting == ["first", "second"]


@pytest.mark.parametrize("end", [OVER, RunStatus(phase="Stopped", start_time="t", attempt=1), None])
def test_the_head_is_told_of_a_free_slot(slots: RecordedLine, end: RunStatus | None) -> None:
    slots.hold(run("active", ACTIVE), SECOND, FIRST)
    assert slots.heard() == []
    slots.queues.changed(key("active"), run("active", end) if end else None)
    assert slots.heard() == ["first"]


def test_irrelevant_changes_of_a_run_wake_no_run(slots: RecordedLine) -> None:
    slots.hold(run("active", ACTIVE), run("first"))
    slots.hold(run("active", ACTIVE.with_changes(message="step 3")))
    assert (slots.heard(), slots.moved) == ([], [])


def test_when_the_head_leaves_the_next_is_the_head(slots: RecordedLine) -> None:
    slots.hold(FIRST, SECOND)
    slots.heard()
    slots.hold(run("first", WAITING, created=1, suspend=True))
    assert slots.heard() == ["second"]


def test_a_higher_priority_goes_first(slots: RecordedLine) -> None:
    slots.hold(run("active", ACTIVE), FIRST, SECOND)
    slots.hold(run("second", created=2, priority=3))
    assert slots.waiting == ["second", "first"]
    assert "first" in slots.moved


def test_a_run_that_changes_its_runtime_changes_queues(slots: RecordedLine) -> None:
    slots.hold(run("active", ACTIVE), FIRST, SECOND)
    moved = run("first", created=1, runtime="other")
    slots.hold(moved)
    assert (slots.queues.waiting("tiny"), slots.queues.waiting("other")) == (
        (key("second"),),
        (key("first"),),
    )
    assert slots.position(moved) == (0, 0)
    assert slots.heard() == ["first"], "there is room at the other one"


def test_a_raised_limit_wakes_as_many_as_fit(slots: RecordedLine) -> None:
    slots.hold(run("active", ACTIVE), *(run(f"w{n}", created=n) for n in range(5)))
    slots.limit = 4
    slots.queues.wake("tiny")
    assert slots.heard() == ["w0", "w1", "w2"]


def test_a_lowered_limit_takes_no_slot_away(slots: RecordedLine) -> None:
    slots.limit = 3
    slots.hold(*(run(f"active{n}", ACTIVE) for n in range(3)), run("waits"))
    slots.limit = 1
    slots.heard()
    slots.queues.changed(key("active0"), None)
    slots.queues.changed(key("active1"), None)
    assert slots.heard() == [], "one is active still"
    assert slots.position(run("waits")) == (1, 0)
    slots.queues.changed(key("active2"), None)
    assert slots.heard() == ["waits"]


def test_a_claimed_slot_is_taken(slots: RecordedLine) -> None:
    slots.hold(FIRST, SECOND)
    with slots.queues.claimed(FIRST):
        assert slots.position(SECOND) == (1, 0)
        assert slots.waiting == ["second"]
        slots.hold(run("first", ACTIVE, created=1))
    assert slots.position(SECOND) == (1, 0)


def test_a_rejected_start_does_not_hold_up_other_runs(slots: RecordedLine) -> None:
    slots.hold(FIRST, SECOND)
    slots.heard()
    with pytest.raises(ForbiddenError), slots.queues.claimed(FIRST):
        raise ForbiddenError
    assert slots.waiting == ["second"]
    assert slots.heard()[-1] == "second"
    slots.hold(FIRST)
    assert slots.waiting == ["first", "second"], "there is news of it"


def test_a_rejected_further_attempt_keeps_the_slot_of_its_run(slots: RecordedLine) -> None:
    """Between two attempts a run is active: if its slot were given away, one more than the limit would run."""
    slots.hold(run("active", ACTIVE), FIRST)
    slots.heard()
    with pytest.raises(ForbiddenError), slots.queues.claimed(run("active", ACTIVE)):
        raise ForbiddenError
    assert slots.position(FIRST) == (1, 0)
    assert slots.heard() == []


def test_no_run_waits_for_one_that_gave_its_slot_back(slots: RecordedLine) -> None:
    slots.hold(run("active", ACTIVE), SECOND)
    slots.heard()
    slots.hold(run("active", GAVE_BACK))
    assert slots.heard() == ["second"]
    assert slots.position(SECOND) == (0, 0)
    assert slots.position(run("active", GAVE_BACK)) == (0, 0), "it is older"
    assert list(slots.queues.counts()) == [("tiny", 0, 1, 1)]


def test_a_pod_that_outlives_its_run_takes_the_slot(slots: RecordedLine) -> None:
    pod = replace(make_pod(ready(), ready()), runtime="tiny")
    slots.hold(run("active", ACTIVE), FIRST)
    slots.heard()
    slots.queues.pod_changed(key("active"), pod)
    slots.queues.changed(key("active"), None)
    assert (slots.heard(), slots.position(FIRST)) == ([], (1, 0))
    slots.hold(run("active", created=3))
    assert slots.position(FIRST) == (1, 0), "a run may have its name"
    slots.queues.pod_changed(key("active"), None)
    assert slots.heard() == ["first"]


@pytest.mark.parametrize("error", [ConflictError, ForbiddenError])
def test_a_slot_that_could_not_be_taken_again_is_free(slots: RecordedLine, error: type[Exception]) -> None:
    slots.hold(run("gave-back", GAVE_BACK), SECOND)
    slots.heard()
    with pytest.raises(error), slots.queues.claimed(run("gave-back", GAVE_BACK)):
        raise error
    assert slots.position(SECOND) == (0, 0)
    assert slots.heard()[-1] == "second"
    assert slots.waiting == ["second"]


def of(namespace: str, name: str, status: RunStatus = WAITING, created: int = 0) -> TrainingRun:
    made = run(name, status, created)
    return made.with_changes(metadata=made.metadata.with_changes(namespace=namespace))


def test_the_backlog_of_one_namespace_holds_up_no_other() -> None:
    slots = RecordedLine(limit=3, share=1)
    slots.hold(of("a", "a0", ACTIVE), *(of("a", f"a{n}", created=n) for n in range(1, 9)))
    slots.heard()
    theirs = of("b", "b1", created=50)
    slots.hold(theirs)
    assert slots.heard() == ["b1"]
    assert slots.position(theirs) == (1, 0)
    found = slots.queues.queue_position(of("a", "a2", created=2))
    assert found == QueuePosition(limit=1, active=1, before=1, namespace="a")
    slots.hold(of("b", "b1", ACTIVE, created=50))
    assert slots.heard() == []
    slots.queues.changed(("a", "a0"), None)
    assert slots.heard() == ["a1"]
    assert slots.queues.queue_position(of("a", "a1", created=1)) == QueuePosition(limit=3, active=1, before=0)


def test_those_behind_a_share_count_what_it_has_room_for() -> None:
    slots = RecordedLine(limit=0, share=2)
    slots.hold(*(of("a", f"a{n}", created=n) for n in range(9)), of("b", "b1", created=20), of("c", "c1", created=30))
    assert slots.position(of("b", "b1", created=20)) == (0, 2)
    assert slots.position(of("c", "c1", created=30)) == (0, 3)


def test_a_share_holds_without_a_limit_of_the_runtime() -> None:
    slots = RecordedLine(limit=None, share=1)
    slots.hold(of("a", "a0", ACTIVE), of("a", "a1", created=1), of("b", "b0"))
    assert slots.queues.queue_position(of("a", "a1", created=1)) == QueuePosition(1, 1, 0, "a")
    assert "b0" in slots.heard()
    assert has_room(slots.queues.queue_position(of("b", "b0")))


def test_with_shares_everyone_whose_position_changes_is_told() -> None:
    slots = RecordedLine(limit=0, share=2)
    slots.hold(*(of(name, f"{name}{n}", created=n) for name in "abc" for n in range(5)), of("a", "active", ACTIVE))
    everyone = [of(name, f"{name}{n}", created=n) for name in "abc" for n in range(5)]

    def positions() -> dict[str, QueuePosition | None]:
        return {each.metadata.name: slots.queues.queue_position(each) for each in everyone}

    for ended in (of("a", "active"), of("b", "b0"), of("c", "c1")):
        before = positions()
        slots.moved.clear()
        slots.queues.changed(ended.key, None)
        after = positions()
        changed = {name for name in before if before[name] != after[name]} - {ended.metadata.name}
        assert {name for name in changed if _place(before[name]) != _place(after[name])} <= set(slots.moved)


def _place(position: QueuePosition | None) -> tuple[str | None, int]:
    assert position is not None
    return position.namespace, position.before


def test_a_lost_start_frees_the_slot_and_wakes_the_head(slots: RecordedLine) -> None:
    slots.hold(FIRST, SECOND)
    slots.heard()
    with pytest.raises(ConflictError), slots.queues.claimed(FIRST):
        raise ConflictError
    assert slots.waiting == ["first", "second"]
    assert slots.heard()[-1] == "first"


def test_an_unconfirmed_start_keeps_its_slot_until_the_cache_has_news(slots: RecordedLine) -> None:
    slots.hold(FIRST, SECOND)
    with pytest.raises(TargetUnreachableError), slots.queues.claimed(FIRST):
        raise TargetUnreachableError
    second = SECOND
    assert slots.position(second) == (1, 0)
    assert slots.position(FIRST) == (0, 0), "it may try again"
    with slots.queues.claimed(FIRST):
        slots.hold(run("first", ACTIVE, created=1))  # it was written: the next try's conflict has it read
    assert slots.position(second) == (1, 0)


def test_a_claim_ends_when_the_cache_disagrees(slots: RecordedLine) -> None:
    slots.hold(run("first"))
    with pytest.raises(TargetUnreachableError), slots.queues.claimed(run("first")):
        raise TargetUnreachableError
    slots.hold(run("first", suspend=True))
    assert slots.position(run("second")) == (0, 0)


def test_only_queued_runs_with_a_changed_position_are_told() -> None:
    slots = RecordedLine(limit=0)
    slots.hold(*(run(f"w{n:02}", created=n) for n in range(30)))
    slots.moved.clear()
    slots.queues.changed(key("w00"), None)
    assert slots.moved == [f"w{n:02}" for n in range(1, 11)] + ["w14", "w24"]


def test_ten_thousand_queued_runs_are_not_all_scanned() -> None:
    slots = RecordedLine(limit=0)
    for number in range(10_000):
        slots.hold(run(f"w{number:05}"))
    begin = time.process_time()
    for number in range(1_000):
        waiting = run(f"w{number:05}")
        with slots.queues.claimed(waiting):
            slots.hold(waiting.with_changes(status=ACTIVE))
        slots.queues.queue_position(run("w09999"))
    assert time.process_time() - begin < 2.0


class AnyOrder(RuleBasedStateMachine):
    """Runs are applied, reconciled, edited, end and vanish in any order, with several reconciles in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[Key] = set()
        self.limit = 2
        self.runs: dict[Key, TrainingRun] = {}
        self.starting: dict[Key, ExitStack] = {}
        self.queues = RuntimeQueues(lambda _: Limits(max_active_runs=self.limit, max_priority=9))
        self.queues.on_change(start=self.told.add, moved=lambda _: None)
        self.most = self.limit

    def put(self, changed: TrainingRun) -> None:
        self.runs[changed.key] = changed
        self.queues.changed(changed.key, changed)

    def some(self, data: st.DataObject, wanted: Iterator[Key]) -> TrainingRun | None:
        keys = sorted(wanted)
        return self.runs[data.draw(st.sampled_from(keys))] if keys else None

    @rule(name=st.sampled_from("abcdefgh"), created=st.integers(0, 9), priority=st.integers(-1, 1))
    def apply(self, name: str, created: int, priority: int) -> None:
        if key(name) not in self.runs:
            self.put(run(name, RunStatus(), created, priority=priority))
            self.told.add(key(name))

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def reconcile(self, data: st.DataObject) -> None:
        self.look_at(data.draw(st.sampled_from(sorted(self.told))))

    @rule()
    def settle(self) -> None:
        """The workers come to rest: every start is written, and every run that was told has been reconciled."""
        while self.told or self.starting:
            for chosen in sorted(self.told):
                self.look_at(chosen)
            for chosen in sorted(self.starting):
                self.take(chosen, "written")

    def look_at(self, chosen: Key) -> None:
        """What a worker does up to its write: it starts the run, or writes that it waits."""
        self.told.discard(chosen)
        looked_at = self.runs.get(chosen)
        if looked_at is None or chosen in self.starting or looked_at.status.start_time or looked_at.spec.suspend:
            return
        line = self.queues.queue_position(looked_at)
        assert line is not None
        if has_room(line):
            claim = ExitStack()
            claim.enter_context(self.queues.claimed(looked_at))
            self.starting[chosen] = claim
        else:
            status = RunStatus(phase="Pending", queue=queue_place(line))
            self.put(looked_at.with_changes(status=status))

    @precondition(lambda self: self.starting)
    @rule(data=st.data(), outcome=st.sampled_from(["written", "refused", "unknown", "unknown and written"]))
    def answer(self, data: st.DataObject, outcome: str) -> None:
        self.take(data.draw(st.sampled_from(sorted(self.starting))), outcome)

    def take(self, chosen: Key, outcome: str) -> None:
        """The write of a start succeeds or is lost."""
        claim, started = self.starting.pop(chosen), self.runs.get(chosen)
        if started is None:
            outcome = "refused"
        if outcome == "written" and started:
            self.put(started.with_changes(status=ACTIVE))
            claim.close()
            return
        error = ConflictError("refused") if outcome == "refused" else TargetUnreachableError("who knows")
        with pytest.raises(type(error)), claim:
            raise error
        if outcome == "unknown and written" and started:
            self.put(started.with_changes(status=ACTIVE))  # the watch event
        self.told.add(chosen)

    @rule(data=st.data(), status=st.sampled_from([OVER, RunStatus(phase="Stopped", start_time="t", attempt=1), None]))
    def end(self, data: st.DataObject, status: RunStatus | None) -> None:
        ended = self.some(data, (k for k, r in self.runs.items() if k not in self.starting and r.status.phase))
        if ended is None:
            return
        if status is None:
            del self.runs[ended.key]
            self.queues.changed(ended.key, None)
        elif ended.status.start_time:
            self.put(ended.with_changes(status=status))

    @rule(data=st.data(), priority=st.integers(-1, 1), suspend=st.booleans())
    def edit(self, data: st.DataObject, priority: int, suspend: bool) -> None:
        edited = self.some(data, (k for k in self.runs if k not in self.starting))
        if edited is not None:
            self.put(edited.with_changes(spec=edited.spec.with_changes(priority=priority, suspend=suspend)))
            self.told.add(edited.key)  # its own event

    @rule(limit=st.integers(0, 3))
    def change_limit(self, limit: int) -> None:
        self.limit = limit
        self.told |= set(self.queues.waiting("tiny"))

    @property
    def held(self) -> set[Key]:
        return {k for k, r in self.runs.items() if r.status == ACTIVE} | set(self.starting)

    @invariant()
    def never_more_than_the_limit(self) -> None:
        """A lowered limit takes no slot away: until one is free no run starts."""
        self.most = max(self.limit, min(self.most, len(self.held)))
        assert len(self.held) <= self.most

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        """While there is room, the head of the queue has been told, and has not been reconciled yet."""
        waiting = [
            r for r in self.runs.values() if r.status.queue and not r.spec.suspend and r.key not in self.starting
        ]
        head = min(waiting, key=lambda run: order_of(run, 9), default=None)
        line = self.queues.queue_position(head) if head else None
        if head and line and has_room(line):
            assert head.key in self.told


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


NEW = RunStatus()
PENDING = RunStatus(phase="Pending")
STARTED = RunStatus(phase="Starting", start_time="2026-05-01T12:00:00Z", attempt=1)
RESTORED = RunStatus(phase="Stopped", start_time="2026-05-01T12:00:00Z")
REFUSED_FOR_GOOD = RunStatus(phase="Failed")
STATUSES = (NEW, PENDING, STARTED, RESTORED, REFUSED_FOR_GOOD)


def child(name: str, status: RunStatus, parent: str | None = None) -> TrainingRun:
    made = make_run(**({"startFrom": {"run": parent}} if parent else {}))
    return made.with_changes(metadata=made.metadata.with_changes(name=name), status=status)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.one_of(st.none(), st.sampled_from(STATUSES)), st.sampled_from(["p", "q", None])
    )
)


@given(CHANGES)
def test_it_agrees_with_a_scan_of_all_runs(changes: list[tuple[str, RunStatus | None, str | None]]) -> None:
    index, held = Unstarted(), dict[Key, TrainingRun]()
    for name, status, parent in changes:
        key = ("team-a", name)
        held.pop(key, None)
        if status is not None:
            held[key] = child(name, status, parent)
        index.changed(key, held.get(key))
    unstarted = {k: r for k, r in held.items() if not r.status.finished and r.status.attempt is None}
    assert {r.key: r for r in index} == unstarted
    for parent in ("p", "q"):
        named = [k for k, r in unstarted.items() if r.spec.start_from and r.spec.start_from.run == parent]
        assert index.begin_from(("team-a", parent)) == tuple(sorted(named))
    assert index.begin_from(("team-b", "p")) == ()


def test_weights_given_by_path_have_no_parent_to_wait_for() -> None:
    index = Unstarted()
    made = make_run(startFrom={"checkpoint": "tinker://m/weights/000004"})
    index.changed(made.key, made)
    assert list(index) == [made]
