"""The reward curve at the end: from the stored history if there is one."""

import json
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.cli.views.progress import CURVE_WIDTH
from rl_operator.cli.views.summary import reward_line, summary
from rl_operator.errors import ForbiddenError

HISTORY = [{"step": 1, "rewardMean": 0.25}, {"step": 20, "rewardMean": 0.75}]
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
    points = [{"step": step, "rewardMean": step / 500} for step in range(500)]
    said = line(manifest(historyName=NAME), config_map(points)).split()
    assert (said[1], said[3]) == ("0.000", "0.998")
    assert CURVE_WIDTH / 2 < len(said[2]) <= CURVE_WIDTH


SAMPLES = "  reward     0.250 ▁█ 0.750"


def test_the_curve_ends_with_the_reward_that_every_view_shows() -> None:
    status = {"metrics": {"rewardMean": 0.5}}
    assert line(manifest("Running", **status), None) == "  reward     0.250 ▁█▅ 0.500"
    assert line(manifest(**status, historyName=NAME), config_map([{"step": 1, "rewardMean": 0.5}])).endswith(" 0.500")


LOST: dict[str, dict[str, Any] | None] = {
    "gone": None,
    "a stranger's": config_map([{"step": 1, "rewardMean": 9.0}], owner="u2"),
    "unreadable": config_map("points"),
    "without rewards": config_map([{"step": 1, "loss": 0.5}]),
}


@pytest.mark.parametrize("kept", LOST.values(), ids=LOST)
def test_a_lost_history_falls_back_to_the_samples_in_the_status(kept: dict[str, Any] | None) -> None:
    assert line(manifest(historyName=NAME), kept) == SAMPLES


def test_a_run_without_a_history_shows_its_samples() -> None:
    assert line(manifest(), config_map([{"step": 1, "rewardMean": 9.0}])) == SAMPLES


def test_a_user_who_may_not_read_it_sees_the_samples() -> None:
    class Guarded(MemoryTarget):
        def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
            raise ForbiddenError(f"you may not read {kind} {namespace}/{name}")

    assert line(manifest(historyName=NAME), None, Guarded()) == SAMPLES


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Stopped"])
def test_every_end_shows_the_progress_so_far(phase: str) -> None:
    assert SAMPLES in summary(parsed(manifest(phase)), MemoryTarget()).splitlines()
