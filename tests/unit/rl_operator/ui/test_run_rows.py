"""Which runs are listed, in which order, and what each row says."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.api.names import EXPERIMENT_LABEL
from rl_operator.operator_errors import ForbiddenError
from rl_operator.ui.run_rows import MOST_READ_SINGLY, RowCache, RunFilter, filtered, in_order, run_row, spark_points

STALLED = [{"type": "Stalled", "status": "True"}]


def run(name: str, created: str = "2026-01-01T00:00:00Z", labels: Any = None, **status: Any) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": created}
    return {"metadata": metadata | {"labels": labels}, "spec": {"environment": f"env-{name}"}, "status": status}


RUNS = [
    run("done", phase="Succeeded", message="Step 40"),
    run("old", "2025-01-01T00:00:00Z", phase="Running"),
    run("new", phase="Running", labels={EXPERIMENT_LABEL: "grid"}),
    run("bad", phase="Failed", message="Out of MEMORY"),
    run("refused", phase="Pending", conditions=STALLED),
    run("strange", phase="Dreaming"),
    run("young"),
]


def names(chosen: RunFilter) -> list[str]:
    return [row.name for row in in_order(filtered(map(run_row, RUNS), chosen))]


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        (RunFilter(), ["bad", "refused", "young", "new", "old", "done", "strange"]),
        (RunFilter(phase="attention"), ["bad", "refused"]),
        (RunFilter(phase="Pending"), ["refused", "young"]),
        (RunFilter(environment="env-new"), ["new"]),
        (RunFilter(experiment="grid"), ["new"]),
        (RunFilter(text="memory"), ["bad"]),
        (RunFilter(text="DONE"), ["done"]),
        (RunFilter(namespace="other"), []),
    ],
    ids=lambda value: "" if isinstance(value, list) else str(value).replace("''", ""),
)
def test_what_needs_attention_comes_first(chosen: RunFilter, shown: list[str]) -> None:
    assert names(chosen) == shown


def test_a_row_says_what_is_known() -> None:
    history = [{"rolloutReward": 0.5, "step": 1}, {"step": 2}, {"rolloutReward": 0.75, "step": 3}]
    metrics = {"rolloutReward": 0.75, "baseline": {"value": 0.25}, "heldOut": {"value": 0.5}}
    row = run_row(run("a", phase="Running", history=history, metrics=metrics, progress={"step": 3, "totalSteps": 40}))
    assert (row.step, row.total_steps, row.rewards, row.reward) == (3, 40, (0.5, 0.75), 0.75)
    assert (row.before, row.now, row.trouble, row.version) == (0.25, 0.5, False, "a/1")
    assert row.age_seconds(datetime(2026, 1, 1, 0, 1, tzinfo=UTC)) == 60
    unknown = run_row(run("b", created=""))
    assert (unknown.phase, unknown.step, unknown.reward, unknown.rewards) == ("Pending", None, None, ())
    assert unknown.age_seconds(datetime(2026, 1, 1, tzinfo=UTC)) == 0


@pytest.mark.parametrize(
    ("values", "points"),
    [([], ""), ([1.0], ""), ([0.0, 1.0], "0.0,19.0 80.0,1.0"), ([2.0, 2.0, 2.0], "0.0,19.0 40.0,19.0 80.0,19.0")],
)
def test_a_spark_line_fits(values: list[float], points: str) -> None:
    assert spark_points(values, 80, 20) == points


class CountingTarget(MemoryTarget):
    lists = 0
    may_get = True

    def runs(self, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        self.lists += 1
        return super().runs(namespace, selector)

    def run_versions(self, namespace: str | None) -> dict[tuple[str, str], str]:
        self.lists -= 1  # of the fake, not of a target
        return super().run_versions(namespace)

    def run(self, namespace: str, name: str) -> dict[str, Any] | None:
        if not self.may_get:
            raise ForbiddenError("no")
        return super().run(namespace, name)

    def change(self, name: str, message: str) -> None:
        run = self.objects["default", name]
        version = str(int(run["metadata"]["resourceVersion"]) + 1)
        metadata = run["metadata"] | {"resourceVersion": version}
        self.objects["default", name] = run | {"metadata": metadata, "status": {"message": message}}


def target_with(runs: int) -> CountingTarget:
    manifests = [run_manifest(f"run-{number}") for number in range(runs)]
    for run in manifests:
        run["metadata"] |= {"uid": f"uid-{run['metadata']['name']}"}
    return CountingTarget(*manifests)


def sentences(cache: RowCache, target: CountingTarget) -> dict[str, str]:
    return {row.name: row.sentence for row in cache.of(target, None)}  # type: ignore[arg-type]  # of the protocol, what is used


def test_only_what_changed_is_read_again() -> None:
    cache, target = RowCache(), target_with(100)
    assert len(sentences(cache, target)) == 100
    assert (target.lists, target.reads) == (1, 0)
    target.change("run-7", "changed")
    assert sentences(cache, target)["run-7"] == "changed"
    assert (target.lists, target.reads) == (1, 1)
    target.delete("default", "run-7")
    assert "run-7" not in sentences(cache, target)
    assert (target.lists, target.reads) == (1, 1)


def test_many_changes_are_one_list() -> None:
    cache, target = RowCache(), target_with(100)
    sentences(cache, target)
    for number in range(MOST_READ_SINGLY + 1):
        target.change(f"run-{number}", "changed")
    assert list(sentences(cache, target).values()).count("changed") == MOST_READ_SINGLY + 1
    assert (target.lists, target.reads) == (2, 0)


def test_whoever_may_only_list_sees_changes_too() -> None:
    cache, target = RowCache(), target_with(3)
    target.may_get = False
    target.change("run-1", "changed")
    assert sentences(cache, target)["run-1"] == "changed"


def test_rows_of_one_caller_are_not_shown_to_another() -> None:
    cache, everything, nothing = RowCache(), target_with(3), target_with(0)
    assert len(sentences(cache, everything)) == 3
    assert sentences(cache, nothing) == {}


def test_the_rows_that_were_not_asked_for_are_dropped() -> None:
    cache, target = RowCache(most=5), target_with(10)
    assert len(sentences(cache, target)) == 10
    assert len(cache._rows) == 5
