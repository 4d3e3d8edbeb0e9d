"""Any life of some runs: people, kubelets, lagging watches, failing calls and kills in any order.

What must hold at every moment is checked after every step. At the end all faults stop, nothing is reconciled without a
reason, and every run ends: every wait has an event or a timer.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.rl_operator.reconcile.simulated_cluster import (
    ERRORS,
    KUEUE_GATE,
    Document,
    Mishap,
    SimulatedCluster,
    failing,
    gates_of,
    is_bound,
    owner_of,
    path_of,
)
from tests.unit.rl_operator.status.builders import failed_result, ready, result, running, terminated
from tests.unit.rl_operator.strategies import EXAMPLES

from generate.transitions import TRANSITIONS, situation_of
from rl_operator.api.names import POD_FINALIZER
from rl_operator.api.status_fields import RunStatus
from rl_operator.cluster.api_server.resources import PODS, RUNS
from rl_operator.status.attempt.run_admission import EXACT_POSITIONS
from rl_operator.status.observed.observation import format_time

NAMES = ("anna", "bert", "cleo")
ROUNDS = 120
"""So many looks, with time going on in between, bring any life to its end."""
LOOKS = 30
WRITES = 60
"""At one moment, for all runs together: more would be a loop."""

ENDS = ("succeeded", "stopped", "failed", "forgotten", "evicted")


NEWS = st.sampled_from(["nothing is heard of it", "the operator works", "the operator hears and works", "all settles"])
"""What follows a step. Without it most steps would be about things that nobody has heard of yet."""

SPECS = st.fixed_dictionaries(
    {"suspend": st.sampled_from([False, False, False, True])},
    optional={
        "backoffLimit": st.integers(0, 2),
        "startDeadlineSeconds": st.just(100),
        "progressDeadlineSeconds": st.just(200),
        "activeDeadlineSeconds": st.just(500),
        "ttlSecondsAfterFinished": st.sampled_from([0, 50]),
        "priority": st.integers(0, 2),
        "queued": st.booleans(),
    },
)


class AnyLife(RuleBasedStateMachine):
    cluster: SimulatedCluster

    def __init__(self) -> None:
        super().__init__()
        self.checked = 0
        self.last: dict[str, RunStatus] = {}
        self.lost: set[str] = set()
        """Uids of pods whose node is gone."""

    @initialize(limit=st.sampled_from([None, 1, 2]), runs=st.lists(SPECS, min_size=1, max_size=len(NAMES)), news=NEWS)
    def begin(self, limit: int | None, runs: list[dict[str, Any]], news: str) -> None:
        self.cluster = SimulatedCluster(limit)
        for name, spec in zip(NAMES, runs, strict=False):
            self.cluster.apply(name, **spec)
        self._go_on(news)

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            try:
                self._come_to_the_end()
            finally:
                self.cluster.close()

    # --- people -------------------------------------------------------------------------------------------------
    @rule(name=st.sampled_from(NAMES), spec=SPECS, delete=st.booleans(), news=NEWS)
    def create_or_delete_a_run(self, name: str, spec: dict[str, Any], delete: bool, news: str) -> None:
        if self.cluster.run(name) is None:
            self.cluster.apply(name, **spec)
        elif delete:
            self.cluster.delete_run(name)
        self._go_on(news)

    @rule(name=st.sampled_from(NAMES), news=NEWS)
    def suspend_or_resume(self, name: str, news: str) -> None:
        if run := self.cluster.run(name):
            self.cluster.edit_run(name, suspend=not run["spec"]["suspend"])
        self._go_on(news)

    @rule(number=st.integers(0, 5), force=st.booleans(), news=NEWS)
    def delete_a_pod(self, number: int, force: bool, news: str) -> None:
        if pod := self._pod(number, self.cluster.pods()):
            if force:
                self.cluster.vanish(pod)
            else:
                self.cluster.api.remove(path_of(pod))
        self._go_on(news)

    # --- kubelets -----------------------------------------------------------------------------------------------
    @rule(number=st.integers(0, 5), news=NEWS)
    def admit_a_pod(self, number: int, news: str) -> None:
        if pod := self._pod(number, (pod for pod in self.cluster.pods() if KUEUE_GATE in gates_of(pod))):
            self.cluster.admit(pod)
        self._go_on(news)

    @rule(number=st.integers(0, 5), works=st.booleans(), news=NEWS)
    def start_a_pod(self, number: int, works: bool, news: str) -> None:
        if pod := self._pod(number, self._may_run()):
            state = ready() if works else running()
            self.cluster.play(pod, "Running", {"api": ready(), "trainer": state, "environment": state})
        self._go_on(news)

    @rule(number=st.integers(0, 5), how=st.sampled_from(ENDS), steps=st.integers(0, 3), gone=st.booleans(), news=NEWS)
    def end_a_pod(self, number: int, how: str, steps: int, gone: bool, news: str) -> None:
        if pod := self._pod(number, self._may_run()):
            self._end(pod, how, steps)
            if gone and "deletionTimestamp" in self.cluster.api.live(path_of(pod))["metadata"]:
                self.cluster.finish(pod)
        self._go_on(news)

    # --- time and calls -----------------------------------------------------------------------------------------
    @rule(seconds=st.sampled_from([1, 15, 61, 130, 700]), news=NEWS)
    def let_time_go_on(self, seconds: int, news: str) -> None:
        self.cluster.api.now += timedelta(seconds=seconds)
        self._go_on(news)

    @rule(plural=st.sampled_from([RUNS.plural, PODS.plural]), count=st.integers(1, 3))
    def deliver(self, plural: str, count: int) -> None:
        self.cluster.deliver(plural, count)
        self.cluster.work()

    @rule(calls=st.integers(1, 6), before=st.booleans(), kind=st.sampled_from(sorted(ERRORS)))
    def prepare_a_mishap(self, calls: int, before: bool, kind: str) -> None:
        """A refused call has done nothing; of a lost or killed one it is unknown."""
        refused = kind in ("conflict", "forbidden")
        self.cluster.api.mishap = Mishap(calls, before or refused, failing(kind))

    @rule(calls=st.integers(1, 6), name=st.sampled_from(NAMES), delete=st.booleans())
    def prepare_an_interruption(self, calls: int, name: str, delete: bool) -> None:
        """A user suspends, resumes or deletes a run while the operator is busy with it."""

        def interrupt() -> None:
            if run := self.cluster.run(name):
                if delete:
                    self.cluster.delete_run(name)
                else:
                    self.cluster.edit_run(name, suspend=not run["spec"]["suspend"])

        self.cluster.api.mishap = Mishap(calls, True, interrupt)

    @rule(name=st.sampled_from(NAMES), news=NEWS)
    def fill_or_raise_a_quota(self, name: str, news: str) -> None:
        """No pod of the run can be created, until it is raised again."""
        self.cluster.api.over_quota ^= {name}
        self._go_on(news)

    @rule()
    def lose_the_nodes(self) -> None:
        """The running pods are never heard from again, except that they are deleted eventually."""
        for pod in self.cluster.pods():
            self.lost.add(pod["metadata"]["uid"])

    @rule(garbage=st.booleans())
    def restart(self, garbage: bool) -> None:
        if garbage:
            self.cluster.collect_garbage()
        self.cluster.start_operator()

    def _go_on(self, news: str) -> None:
        if news == "all settles":
            self._settle()
            return
        if "hears" in news:
            self.cluster.deliver_all()
        if "works" in news:
            self.cluster.work()

    def _settle(self) -> None:
        """With all events delivered, the operator comes to rest after a few writes."""
        before = self.cluster.api.writes
        for _ in range(LOOKS):
            self.cluster.deliver_all()
            if not any(at <= self.cluster.api.now for at in self.cluster.due.values()):
                break
            self.cluster.work()
        else:
            raise AssertionError(f"no rest: {self.cluster.due}, {self._statuses()}")
        assert self.cluster.api.writes - before <= WRITES

    # --- what always holds --------------------------------------------------------------------------------------
    @invariant()
    def one_living_pod_per_run(self) -> None:
        living = [owner_of(pod) for pod in self.cluster.pods() if self.cluster.lives(pod)]
        assert len(living) == len(set(living)), [path_of(pod) for pod in self.cluster.pods()]

    @invariant()
    def the_limit_is_kept(self) -> None:
        """Counted by runs that hold a slot, so also by pods that were not lost."""
        runs = self.cluster.api.all(RUNS.plural)
        statuses = [RunStatus.model_validate(run["status"]) for run in runs]
        active = [
            s
            for s in statuses
            if s.start_time and not s.finished and s.phase not in ("Draft", "Stopped") and s.queue is None
        ]
        assert self.cluster.limit is None or len(active) <= self.cluster.limit, active

    @invariant()
    def no_run_waits_for_a_slot_whose_pod_may_run(self) -> None:
        waiting = {run["metadata"]["uid"] for run in self.cluster.api.all(RUNS.plural) if "queue" in run["status"]}
        assert not [path_of(pod) for pod in self._may_run() if owner_of(pod) in waiting]

    @invariant()
    def every_version_of_a_run_follows_from_the_one_before(self) -> None:
        history = self.cluster.api.history
        for document in history[self.checked :]:
            status, uid = RunStatus.model_validate(document["status"]), document["metadata"]["uid"]
            follows(self.last.get(uid, RunStatus()), status, document["spec"].get("backoffLimit", 3))
            self.last[uid] = status
        self.checked = len(history)

    # --- the end ------------------------------------------------------------------------------------------------
    def _come_to_the_end(self) -> None:
        """All parties behave as expected."""
        cluster = self.cluster
        cluster.api.mishap = None
        cluster.api.over_quota.clear()
        for name in NAMES:
            if cluster.run(name):
                cluster.edit_run(name, suspend=False)
        for _ in range(ROUNDS):
            self._settle()
            self._check()
            if self._over():
                return
            if not self._kubelets_act():
                cluster.collect_garbage()
                cluster.api.now = max(cluster.api.now, min(cluster.due.values(), default=cluster.api.now))
        raise AssertionError(f"not over: due {cluster.due} at {cluster.api.now}, {self._statuses()}")

    def _check(self) -> None:
        self.one_living_pod_per_run()
        self.the_limit_is_kept()
        self.every_version_of_a_run_follows_from_the_one_before()

    def _over(self) -> bool:
        runs = self.cluster.api.all(RUNS.plural)
        finished = all(RunStatus.model_validate(run["status"]).finished for run in runs)
        expired = not any(run["spec"].get("ttlSecondsAfterFinished") is not None for run in runs)
        held = any(POD_FINALIZER in pod["metadata"].get("finalizers", ()) for pod in self.cluster.pods())
        known = {run["metadata"]["uid"] for run in runs}
        working = any(self.cluster.lives(pod) for pod in self.cluster.pods() if owner_of(pod) in known)
        return finished and expired and not held and not working

    def _kubelets_act(self) -> bool:
        acted = False
        for pod in tuple(self.cluster.pods()):
            uid, leaving = pod["metadata"]["uid"], "deletionTimestamp" in pod["metadata"]
            phase = pod.get("status", {}).get("phase")
            if uid in self.lost and is_bound(pod):
                if leaving or not self.cluster.lives(pod):
                    continue
                self.cluster.api.remove(path_of(pod))
            elif leaving and uid not in self.cluster.api.ended:
                if phase == "Running":
                    self._end(pod, "stopped", 1)
                self.cluster.finish(self.cluster.api.live(path_of(pod)))
            elif not leaving and KUEUE_GATE in gates_of(pod):
                self.cluster.admit(pod)
            elif not leaving and phase is None and not gates_of(pod):
                self.cluster.play(pod, "Running", {c: ready() for c in ("api", "trainer", "environment")})
            elif not leaving and phase == "Running":
                self._end(pod, "succeeded", 40)
            else:
                continue
            acted = True
        return acted

    def _end(self, pod: Document, how: str, steps: int) -> None:
        at = format_time(self.cluster.api.now)
        said = {
            "succeeded": result(),
            "stopped": result(outcome="stopped", stepsTrained=steps, samplerPath=None),
            "failed": failed_result("internal", "bug") if steps else "Traceback",
        }
        code = {"succeeded": 0, "stopped": 0, "failed": 1}.get(how, 137)
        status = {"reason": "Evicted", "message": "low on memory"} if how == "evicted" else {}
        containers = {
            "api": terminated(0, at=at),
            "trainer": terminated(code, said.get(how, ""), at=at),
            "environment": terminated(0, at=at),
        }
        self.cluster.play(pod, "Failed" if code else "Succeeded", containers, **status)

    def _may_run(self) -> Iterator[Document]:
        return (pod for pod in self.cluster.pods() if self.cluster.lives(pod) and not gates_of(pod))

    def _pod(self, number: int, pods: Iterable[Document]) -> Document | None:
        found = sorted(pods, key=path_of)
        return found[number % len(found)] if found else None

    def _statuses(self) -> list[Any]:
        runs = [(run["metadata"]["name"], run["spec"], run["status"]) for run in self.cluster.api.all(RUNS.plural)]
        return [*runs, *((path_of(pod), pod["metadata"], pod.get("status")) for pod in self.cluster.pods())]


def follows(before: RunStatus, after: RunStatus, backoff_limit: int) -> None:
    """Whether one status may follow another of the same run."""
    if before.finished:
        assert after.with_changes(observed_generation=before.observed_generation) == before, "what is over stays so"
        return
    assert before.start_time in (None, after.start_time), "the start never changes"
    assert (after.attempt or 0) - (before.attempt or 0) in (0, 1), "attempts are counted one by one"
    assert (after.failed_attempts or 0) - (before.failed_attempts or 0) in (0, 1)
    assert (after.failed_attempts or 0) <= backoff_limit + 1
    known = {attempt.attempt: attempt for attempt in before.attempts}
    for attempt in after.attempts:
        assert known.get(attempt.attempt, attempt) == attempt, "what is recorded stays so"
    numbers = [attempt.attempt for attempt in after.attempts]
    newest = max(numbers, default=0)
    assert numbers == list(range(newest - len(numbers) + 1, newest + 1))
    assert newest >= (after.attempt or 1) - 1, "an attempt is recorded before the next one begins"
    steps = [status.progress.step if status.progress else 0 for status in (before, after)]
    assert steps == sorted(steps) or before.attempt != after.attempt, "an attempt begins with its checkpoint"
    if after.phase is not None:
        now = situation_of(after)
        then = situation_of(before) if before.phase else None
        assert then is now or (then, now) in TRANSITIONS, (then, now)
    assert after.queue is None or after.queue.place <= EXACT_POSITIONS


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(
    max_examples=EXAMPLES // 5,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
