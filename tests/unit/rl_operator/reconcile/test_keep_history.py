"""The history at an attempt's end: status, then history, then finalizer; with kills in between."""

import json
from pathlib import Path

import pytest
from tests.unit.rl_operator.reconcile.life import BEFORE_OR_AFTER, KEY, Life, MortalClient, make_life
from tests.unit.rl_operator.status.builders import ready, result, terminated

from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import ForbiddenError
from rl_operator.status.observed.history import Point
from rl_operator.status.observed.observation import PodObservation, format_time

FIRST: tuple[Point, ...] = tuple({"step": step, "rolloutReward": 0.5} for step in (1, 2, 3))
SECOND: tuple[Point, ...] = tuple({"step": step, "rolloutReward": 0.75} for step in (3, 4))


def kept(life: Life) -> list[tuple[float, float]] | None:
    """Step and reward of the stored points; None: there is no history."""
    assert life.status.history_name is not None
    found = life.store.get("ConfigMap", KEY[0], life.status.history_name)
    points = json.loads(found["data"]["history.json"])["points"] if found else []
    return [(point["step"], point["rolloutReward"]) for point in points] if found else None


async def test_the_history_covers_all_attempts(life: Life) -> None:
    await life.train()
    life.series[life.status.pod_name or ""] = FIRST
    error = {"class": "internal", "message": "bug"}
    message = result(outcome="failed", stepsTrained=2, samplerPath=None, metrics={}, error=error)
    await life.report("Failed", ready(), terminated(1, message, at=format_time(life.now)), terminated(0))
    assert kept(life) == [(1, 0.5), (2, 0.5), (3, 0.5)]
    await life.later(11)
    await life.report("Running", ready(), ready(), ready())
    life.series[life.status.pod_name or ""] = SECOND
    await life.succeed()
    assert kept(life) == [(1, 0.5), (2, 0.5), (3, 0.75), (4, 0.75), (40, 0.91)]


async def test_without_a_history_nothing_is_named_or_written(life: Life) -> None:
    await life.train()
    await life.succeed()
    assert life.status.history_name is None
    assert life.names("ConfigMap") == [life.status.config_map_name]


@BEFORE_OR_AFTER
@pytest.mark.parametrize("write", ["status", "series", "finalizer"])
async def test_killed_at_the_end_the_history_may_be_missing_but_is_never_wrong(
    life: Life, write: str, before: bool
) -> None:
    await life.train()
    life.series[life.status.pod_name or ""] = FIRST
    life.client.dies_at = life.client.writes + 1 + ("status", "series", "finalizer").index(write)
    life.client.dies_before = before
    await life.succeed()
    assert life.client.dies_at is None, "the kill did not happen"
    lost = (write, before) in (("status", False), ("series", True))
    assert kept(life) == (None if lost else [(1, 0.5), (2, 0.5), (3, 0.5), (40, 0.91)])


async def test_a_history_that_cannot_be_written_blocks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class FullWorld(MortalClient):
        async def save_history(self, run: TrainingRun, pod: PodObservation) -> None:
            raise ForbiddenError(f"exceeded quota: no ConfigMap for {run.metadata.name}, pod {pod.name}")

    life = make_life(tmp_path, FullWorld)
    await life.train()
    life.series[life.status.pod_name or ""] = FIRST
    await life.succeed()
    assert kept(life) is None
    assert "the history of attempt 1 is lost: exceeded quota" in caplog.text
