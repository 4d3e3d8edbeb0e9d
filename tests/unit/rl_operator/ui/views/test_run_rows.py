"""Which runs are listed, in which order, and what each row says."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rl_operator.api.names import EXPERIMENT_LABEL
from rl_operator.ui.views.run_rows import RunFilter, filtered, in_order, run_row, spark_points

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
    history = [{"rewardMean": 0.5, "step": 1}, {"step": 2}, {"rewardMean": 0.75, "step": 3}]
    metrics = {"rewardMean": 0.75, "baselineAccuracy": 0.25, "evalAccuracy": 0.5}
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
