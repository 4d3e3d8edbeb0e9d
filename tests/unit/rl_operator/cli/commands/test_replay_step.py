"""What `rlctl replay` hands to `tinker-atropos`; tests/integration/local/test_training.py has it from end to end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import frame, group, lost, rollout, source, step
from tests.unit.rl_operator.samples import frozen
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.cli.commands.replay_step import beginning_of, write_steps
from rl_operator.local.state.state_store import StateStore
from rl_operator.rollouts.rollout_source import RolloutSteps

Call = Callable[..., tuple[int, str, str]]


def trained(number: int, attempt: int) -> list[dict[str, Any]]:
    return [step(number, {"trained": 3}, attempt=attempt), group(0, rollout(1.0, f"by {attempt}"))]


# Attempt 2 began again after step 3; it is at step 5, and step 7 is of the attempt before.
KEPT = [(2, 1), (3, 1), (4, 1), (4, 2), (5, 1), (5, 2), (6, 1), (7, 1)]
FILES = {f"{number}-{attempt}": trained(number, attempt) for number, attempt in KEPT} | {"0-1": [lost()]}


@pytest.mark.parametrize(
    ("number", "retrain", "written"),
    [
        pytest.param(5, 25, {5: 2, 4: 2, 3: 1, 2: 1}, id="up to a gap"),
        pytest.param(5, 1, {5: 2, 4: 2}, id="no more than are to be trained again"),
        pytest.param(5, 0, {5: 2}, id="only the step"),
        pytest.param(7, 3, {7: 1, 6: 1, 5: 1, 4: 1}, id="of the attempts that led to it"),
    ],
)
def test_the_step_and_those_that_led_to_it(number: int, retrain: int, written: dict[int, int], tmp_path: Path) -> None:
    write_steps(RolloutSteps.of(source(FILES)), number, retrain, tmp_path)
    assert {int(path.stem) for path in tmp_path.iterdir()} == written.keys()
    for each, attempt in written.items():
        records = [json.loads(line) for line in (tmp_path / f"{each}.jsonl").read_text().splitlines()]
        assert records == trained(each, attempt)


PARENT = {"run": "first", "uid": "u", "step": 4, "statePath": "tinker://r/weights/4"}
CHECKPOINT = "tinker://r/weights/x"


@pytest.mark.parametrize(
    ("spec", "status", "variables"),
    [
        ({}, {}, {}),
        ({"startFrom": {"checkpoint": CHECKPOINT}}, {}, {"RL_START_FROM": CHECKPOINT, "RL_START_FROM_OPTIMIZER": ""}),
        (
            {"startFrom": {"run": "first", "withOptimizer": True}},
            {"startedFrom": PARENT},
            {"RL_START_FROM": PARENT["statePath"], "RL_START_FROM_OPTIMIZER": "1"},
        ),
    ],
)
def test_a_run_that_began_with_other_weights(
    spec: dict[str, Any], status: dict[str, Any], variables: dict[str, str]
) -> None:
    assert beginning_of(parsed(run_manifest(spec=spec, **status))) == variables


STARTED = {"startTime": "2026-01-01T00:00:00Z", "phase": "Succeeded", "podName": "x"}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Pending"}, "can be computed again: it has not started"),
        ({**STARTED, "configMapName": "old"}, "can be computed again: its ConfigMap old is gone"),
        (STARTED, "there are no rollouts of step 9; the nearest steps that have some: 6, 7"),
        ({**STARTED, "configHash": "0" * 64}, "ConfigMap default/sorting-config is not what the run was started with"),
    ],
)
def test_what_cannot_be_replayed_says_why(
    status: dict[str, Any], said: str, store_of_rlctl: StateStore, call_rlctl: Call
) -> None:
    run = store_of_rlctl.create(run_manifest("sorting"))
    store_of_rlctl.create(frozen(run, {"config.yaml": ""}))
    told = run["status"] | status if "startTime" in status else status
    store_of_rlctl.update("RLTrainingRun", "default", "sorting", lambda found: found.update(status=told))
    folder = store_of_rlctl.layout.rollouts("default", "sorting", run["metadata"]["uid"])
    folder.mkdir(parents=True)
    for name in (6, 7):
        (folder / f"{name:06}-1.jsonl.zst").write_bytes(frame(*trained(name, 1)))
    code, printed, errors = call_rlctl("replay", "sorting", "--step", "9", "--local")
    assert (code, printed) == (2, "")
    assert said in errors
