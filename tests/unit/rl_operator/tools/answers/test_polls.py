from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest
from tests.unit.rl_operator.tools.recorded import NAMES, recorded

from rl_operator.api.training_run import TrainingRun
from rl_operator.tools.answers.polls import LATEST, QUEUED, SOONEST, next_look


def training(eta: int | None, pace: float | None) -> dict[str, Any]:
    return {
        "phase": "Running",
        "progress": {"step": 1, "totalSteps": 9, "percent": 1, "secondsPerStep": pace, "etaSeconds": eta},
    }


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        pytest.param({"phase": "Pending"}, 15, id="pending"),
        pytest.param({"phase": "Pending", "queue": {"place": 1, "active": 1, "limit": 1}}, QUEUED, id="queued"),
        pytest.param({"phase": "Starting"}, 15, id="starting"),
        pytest.param({"phase": "Running"}, 15, id="no step yet"),
        pytest.param(training(5, 1.0), SOONEST, id="nearly done"),
        pytest.param(training(400, 2.0), 40, id="a tenth of what is left"),
        pytest.param(training(400, 100.0), 100, id="no sooner than the next step"),
        pytest.param(training(150_000, 60.0), LATEST, id="at least every half an hour"),
        pytest.param({"phase": "Stopping"}, 5, id="stopping"),
        pytest.param({"phase": "Stopped"}, None, id="stopped"),
        pytest.param({"phase": "Stopped", "observedGeneration": 0}, SOONEST, id="resumed, not looked at"),
        pytest.param({"phase": "Succeeded"}, None, id="succeeded"),
        pytest.param({"phase": "Failed"}, None, id="failed"),
    ],
)
def test_the_next_poll(status: dict[str, Any], seconds: int | None) -> None:
    assert next_look(parsed(run_manifest(**status))) == seconds


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_run_has_a_next_poll_unless_it_rests(name: str) -> None:
    run = TrainingRun.model_validate(recorded(name))
    seconds = next_look(run)
    assert (seconds is None) is run.at_rest
    assert seconds is None or 5 <= seconds <= LATEST
