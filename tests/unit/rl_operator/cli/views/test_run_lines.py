"""The reward curve at the end: from the stored history if there is one."""

import json
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.cli.printing import CURVE_WIDTH
from rl_operator.cli.views.run_lines import Curve, held_out_table, plain_line, reward_line, summary
from rl_operator.operator_errors import ForbiddenError
from rl_operator.targets.runs.run_text import time_left

HISTORY = [{"step": 1, "rolloutReward": 0.25}, {"step": 20, "rolloutReward": 0.75}]
NAME = "sorting-u1-history"


def manifest(phase: str = "Succeeded", **status: Any) -> dict[str, Any]:
    run = run_manifest(phase=phase, history=HISTORY, **status)
    run["metadata"]["uid"] = "u1"
    return run


def config_map(points: Any, owner: str = "u1") -> dict[str, Any]:
    metadata = {"name": NAME, "namespace": "default", "ownerReferences": [{"uid": owner}]}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"history.json": json.dumps({"points": points})}}


def line(run: dict[str, Any], kept: dict[str, Any] | None, target: MemoryTarget | None = None) -> str:
    target = target or MemoryTarget()
    if kept:
        target.apply(kept)
    (said,) = reward_line(parsed(run), target)
    return said


def test_the_history_is_the_curve() -> None:
    points = [{"step": step, "rolloutReward": step / 500} for step in range(500)]
    said = line(manifest(historyName=NAME), config_map(points)).split()
    assert (said[2], said[4]) == ("0.000", "0.998")
    assert CURVE_WIDTH / 2 < len(said[3]) <= CURVE_WIDTH


SAMPLES = "  rollout reward  0.250 ▁█ 0.750"


def test_the_curve_ends_with_the_reward_that_every_view_shows() -> None:
    status = {"metrics": {"rolloutReward": 0.5}}
    assert line(manifest("Running", **status), None) == "  rollout reward  0.250 ▁█▅ 0.500"
    assert line(manifest(**status, historyName=NAME), config_map([{"step": 1, "rolloutReward": 0.5}])).endswith(
        " 0.500"
    )


LOST: dict[str, dict[str, Any] | None] = {
    "gone": None,
    "a stranger's": config_map([{"step": 1, "rolloutReward": 9.0}], owner="u2"),
    "unreadable": config_map("points"),
    "without rewards": config_map([{"step": 1, "loss": 0.5}]),
}


@pytest.mark.parametrize("kept", LOST.values(), ids=LOST)
def test_a_lost_history_falls_back_to_the_samples_in_the_status(kept: dict[str, Any] | None) -> None:
    assert line(manifest(historyName=NAME), kept) == SAMPLES


def test_a_run_without_a_history_shows_its_samples() -> None:
    assert line(manifest(), config_map([{"step": 1, "rolloutReward": 9.0}])) == SAMPLES


def test_a_user_who_may_not_read_it_sees_the_samples() -> None:
    class Guarded(MemoryTarget):
        def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
            raise ForbiddenError(f"you may not read {kind} {namespace}/{name}")

    assert line(manifest(historyName=NAME), None, Guarded()) == SAMPLES


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Stopped"])
def test_every_end_shows_the_progress_so_far(phase: str) -> None:
    assert SAMPLES in summary(parsed(manifest(phase)), MemoryTarget()).splitlines()


FIGURES = {
    "rolloutReward": 0.75,
    "heldOut": {"value": 0.9, "low": 0.88, "high": 0.92, "samples": 500},
    "baseline": {"value": 0.5, "low": 0.46, "high": 0.54},
}


EVALUATION = {
    "step": 40, "more": 2,
    "figures": [
        {"metric": "eval/percent_correct", "value": 0.9, "low": 0.88, "high": 0.92, "samples": 500},
        {"metric": "eval/hard/greedy_percent_correct", "value": 0.25},
    ],
}  # fmt: skip


def test_figures_of_an_evaluation() -> None:
    lines = list(held_out_table(parsed(run_manifest("sorting", evaluation=EVALUATION))))
    assert lines[0].startswith("  evaluated after step 40; ")
    assert lines[0].endswith(" rollouts sorting --step 40 has 2 more")
    assert lines[1:] == [
        "    FIGURE                        VALUE   95 % INTERVAL    N",
        "    percent_correct               0.900   [0.880, 0.920]   500",
        "    hard/greedy_percent_correct   0.250",
    ]
    assert list(held_out_table(parsed(run_manifest(metrics=FIGURES)))) == []


def test_a_running_run_in_one_line() -> None:
    progress = {"step": 3, "totalSteps": 40, "percent": 7, "etaSeconds": 70}
    run = parsed(run_manifest(phase="Running", progress=progress, metrics=FIGURES))
    held_out = "held-out 0.900 [0.880, 0.920]"
    parts = ["Running", "step 3/40", "rollout reward 0.750", held_out, "1m10s left"]
    assert plain_line(run).split("   ") == parts


@pytest.mark.parametrize(
    ("progress", "metrics", "text"),
    [
        pytest.param({}, {}, "", id="unknown"),
        pytest.param({"etaSeconds": 0}, {}, "", id="over"),
        pytest.param({"etaSeconds": 70}, {}, "1m10s left", id="no evaluation"),
        pytest.param({"etaSeconds": 70}, {"heldOut": {"value": 0.5, "step": 0}}, "1m10s left", id="measured"),
        pytest.param(
            {"etaSeconds": 70, "fromStep": 10}, {"heldOut": {"value": 0.5, "step": 10}}, "1m10s left + evaluation",
            id="of an earlier attempt",
        ),
        pytest.param(
            {"etaSeconds": 70, "fromStep": 10}, {"heldOut": {"value": 0.5, "step": 20}}, "1m10s left",
            id="measured since",
        ),
        pytest.param(
            {"etaSeconds": 70}, {"heldOut": {"value": 0.5, "step": 0}, "source": "wandb"}, "1m10s left + evaluation",
            id="from W&B",
        ),
    ],
)  # fmt: skip
def test_the_time_left_says_what_it_leaves_out(progress: dict[str, Any], metrics: dict[str, Any], text: str) -> None:
    progress = {"step": 3, "totalSteps": 40, "percent": 7, **progress}
    assert time_left(parsed(run_manifest(phase="Running", progress=progress, metrics=metrics))) == text
    assert time_left(parsed(run_manifest(phase="Stopped", progress=progress, metrics=metrics))) == ""


def test_any_other_run_in_one_line() -> None:
    assert (
        plain_line(parsed(run_manifest(phase="Starting", message="Creating the pod."))) == "Starting  Creating the pod."
    )
    assert plain_line(parsed(run_manifest())) == "Pending"


def test_the_curve_collects_the_observed_points() -> None:
    curve = Curve()
    for step in range(1, 4):
        progress = {"step": step, "totalSteps": 40, "percent": 1}
        history = [{"step": 1, "rolloutReward": 0.0}]
        metrics = {"rolloutReward": 0.5 * (step - 1)}
        curve.add(parsed(run_manifest(phase="Running", progress=progress, metrics=metrics, history=history)))
    assert curve.line() == "▁▅█"
    curve.points = {step: float(step) for step in range(1000)}
    assert len(curve.line()) <= CURVE_WIDTH


def test_the_summary_of_a_success() -> None:
    run = parsed(
        run_manifest(
            phase="Succeeded",
            startTime="2026-01-01T00:00:00Z",
            completionTime="2026-01-01T00:00:42Z",
            progress={"step": 40, "totalSteps": 40, "percent": 100},
            metrics=FIGURES,
            weights={"samplerPath": "tinker://s", "statePath": "tinker://w"},
        )
    )
    said = summary(run, MemoryTarget())
    assert "sorting: trained sort_digits for 40 steps in 42s (memory, tiny)" in said
    assert "before 0.500 [0.460, 0.540]   after 0.900 [0.880, 0.920]   (95 % intervals over 500 samples)" in said
    assert "tinker://s " in said
    assert "rlctl results sorting --memory " in said


def test_the_summary_of_a_run_at_its_budget_says_what_it_cost_and_how_to_go_on() -> None:
    suspended = {"type": "Suspended", "status": "True", "reason": "BudgetReached", "lastTransitionTime": "t"}
    cost = {"amount": 9.5, "currency": "USD", "budget": 10}
    run = parsed(run_manifest(phase="Stopped", message="BudgetReached.", conditions=[suspended], cost=cost))
    said = summary(run, MemoryTarget())
    assert "  cost            9.50 of 10.00 USD" in said
    assert "Next: rlctl resume sorting --budget AMOUNT --memory" in said


def test_the_summary_of_a_failure_says_where_to_look() -> None:
    failure = {"reason": "EnvironmentFailed", "container": "environment", "exitCode": 1, "message": "no items"}
    run = parsed(run_manifest(phase="Failed", message="EnvironmentFailed: no items.", failure=failure, podName="p"))
    said = summary(run, MemoryTarget())
    assert "Failed: EnvironmentFailed: no items." in said
    assert "Next: rlctl logs sorting -c environment --tail 50 --memory" in said


@pytest.mark.parametrize(
    ("wandb", "lines"),
    [
        (None, []),
        ({"state": "disabled"}, []),
        ({"state": "finished", "url": "http://w/r"}, ["http://w/r"]),
        ({"state": "failed", "runId": "r"}, ["failed"]),
        ({"state": "offline; to send it: wandb sync x", "url": None}, ["offline; to send it: wandb sync x"]),
        ({"state": "offline; to send it: S", "url": "http://w/r"}, ["http://w/r", "offline; to send it: S"]),
    ],
)
@pytest.mark.parametrize("phase", ["Succeeded", "Stopped"])
def test_the_summary_says_where_the_curves_are(phase: str, wandb: dict[str, str] | None, lines: list[str]) -> None:
    run = parsed(run_manifest(phase=phase, **({"wandb": wandb} if wandb else {})))
    said = summary(run, MemoryTarget()).splitlines()
    assert [line for line in said if "W&B" in line] == [f"  W&B             {line}" for line in lines]
