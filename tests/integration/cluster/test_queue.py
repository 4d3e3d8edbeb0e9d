"""limits.maxActiveRuns on a real API server: never more than the limit, in order, whatever happens in between."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNTIMES
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime

SUCCEEDED = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)
_numbers = itertools.count(1)


class Line:
    """Runs of one limited runtime."""

    def __init__(self, runs: RunsNamespace, runtime: str) -> None:
        self.runs = runs
        self.runtime = runtime

    def apply(self, *names: str, **spec: Any) -> None:
        for name in names:
            self.runs.apply(name, runtime=self.runtime, **spec)

    def end(self, name: str) -> None:
        pod = self.runs.until_pod(name=name)
        self.runs.kubelet.start(pod)
        self.runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))
        self.runs.until_phase("Succeeded", name)

    def started(self) -> set[str]:
        """The runs for which a pod was ever created."""
        return {pod["metadata"]["labels"]["rl-operator.dev/run"] for pod in self.runs.kubelet.pods()}

    def until_queued(self, name: str, place: int) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            status = self.runs.status(name)
            return status if (status.get("queue") or {}).get("place") == place else None

        return wait_for(f"run {name} has place {place}", look)

    def until_started(self, *names: str) -> None:
        wait_for(f"{names} have started", lambda: self.started() >= set(names))


@pytest.fixture
def line(runs: RunsNamespace) -> Iterator[Callable[[int], Line]]:
    """Creates runtimes with a limit."""

    def make(limit: int) -> Line:
        name = f"limited-{next(_numbers)}"
        install_runtime(runs.admin, "tiny", name, limits={"maxActiveRuns": limit, "maxPriority": 1})
        return Line(runs, name)

    return make


Made = Callable[[int], Line]


def test_runs_wait_with_their_position_and_start_in_order(line: Made) -> None:
    made = line(1)
    made.apply("first")
    made.until_started("first")
    made.apply("second")
    made.until_queued("second", 1)
    made.apply("third")
    status = made.until_queued("third", 2)
    assert status["phase"] == "Pending"
    assert status["message"] == f"Queued: position 2 at runtime '{made.runtime}' (1 of 1 runs active)."
    assert made.runs.condition("Reconciling", "third")["reason"] == "Queued"  # type: ignore[index]
    made.end("first")
    made.until_started("second")
    assert "queue" not in made.runs.status("second")
    made.until_queued("third", 1)
    made.end("second")
    made.until_started("third")
    made.end("third")


def test_a_burst_of_runs_never_exceeds_the_limit(line: Made) -> None:
    made = line(3)
    names = [f"run-{number:02}" for number in range(12)]
    made.apply(*names)
    end_all(made, names, 3)


def end_all(made: Line, names: list[str], limit: int) -> None:
    """End the runs that hold a slot one after the other, until all have started; never too many at once."""
    for _ in names:
        held = wait_for("the places are taken", lambda: made.started() - over(made, names))
        assert len(held) <= limit, held
        made.end(min(held))
    assert made.started() == set(names)


def over(made: Line, names: list[str]) -> set[str]:
    return {name for name in names if made.runs.status(name).get("phase") == "Succeeded"}


def test_a_stopped_run_frees_its_slot_and_waits_for_another(line: Made) -> None:
    made = line(1)
    made.apply("first")
    made.until_started("first")
    made.apply("second")
    made.until_queued("second", 1)
    made.runs.edit("first", suspend=True)
    made.until_started("second")
    made.runs.until_phase("Stopped", "first")
    made.runs.edit("first", suspend=False)
    made.until_queued("first", 1)
    made.end("second")
    assert made.runs.until_pod(2, "first").endswith("-2")


@pytest.mark.parametrize("orphaned", [False, True])
def test_a_deleted_run_keeps_its_slot_until_its_pod_is_gone(
    line: Made, operator: OperatorProcess, *, orphaned: bool
) -> None:
    made = line(1)
    runs = made.runs
    made.apply("first")
    pod = runs.until_training(name="first")
    path = f"/api/v1/namespaces/{runs.namespace}/pods/{pod}"
    made.apply("second")
    made.until_queued("second", 1)
    if orphaned:  # what the garbage collector does for --cascade=orphan
        runs.admin.patch(path, {"metadata": {"ownerReferences": None}})
    runs.delete("first")
    wait_for("the pod is being deleted", lambda: "deletionTimestamp" in (runs.kubelet.pod(pod) or {})["metadata"])
    operator.kill()
    operator.start()
    stays("the slot is taken", lambda: made.started() == {"first"}, seconds=2.0)
    assert runs.status("second")["queue"]["active"] == 1
    runs.kubelet.remove(pod)
    made.until_started("second")
    made.end("second")


def test_a_deleted_runtime_takes_its_queue_with_it(line: Made) -> None:
    """A running run continues, and still holds its slot when the runtime exists again."""
    made = line(1)
    made.apply("first")
    made.until_started("first")
    made.apply("second")
    made.until_queued("second", 1)
    made.runs.admin.delete(f"{RUNTIMES}/{made.runtime}")
    made.runs.until_reason("Stalled", "RuntimeNotFound", name="second")
    assert "queue" not in made.runs.status("second")
    install_runtime(made.runs.admin, "tiny", made.runtime, limits={"maxActiveRuns": 1})
    made.until_queued("second", 1)
    assert made.started() == {"first"}
    made.end("first")
    made.until_started("second")


def test_a_restarted_operator_continues_the_queue(
    line: Made, operator: OperatorProcess, control_plane: ControlPlane
) -> None:
    made = line(1)
    made.apply("first")
    made.until_started("first")
    made.apply("zz-second")
    made.until_queued("zz-second", 1)
    made.apply("aa-urgent", priority=1)
    made.until_queued("aa-urgent", 1)
    made.until_queued("zz-second", 2)
    operator.kill()
    made.apply("zzz-meanwhile")
    before = len(control_plane.operator_writes(made.runs.namespace))
    operator.start()
    made.until_queued("zzz-meanwhile", 3)

    def changed() -> set[str]:
        written = control_plane.operator_writes(made.runs.namespace)[before:]
        return {write.name for write in written if write.resource != "events"}

    wait_for("the write is in the audit log, which may be later than what it wrote", changed)
    assert changed() == {"zzz-meanwhile"}, "nothing else has changed"
    assert made.started() == {"first"}
    for ended, next_one in (("first", "aa-urgent"), ("aa-urgent", "zz-second"), ("zz-second", "zzz-meanwhile")):
        made.end(ended)
        made.until_started(next_one)


@pytest.mark.parametrize("milliseconds", [5, 40])
def test_killed_during_a_burst_it_starts_no_more_than_the_limit(
    line: Made, operator: OperatorProcess, milliseconds: int
) -> None:
    """Wherever it dies between decision, status and pod, the statuses say which runs hold a slot."""
    made = line(2)
    names = [f"run-{number}" for number in range(6)]
    made.apply(*names)
    time.sleep(milliseconds / 1000)
    operator.kill()
    operator.start()
    end_all(made, names, 2)
