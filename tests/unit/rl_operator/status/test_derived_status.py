"""The status as a value: golden files for what users and GitOps tools see, and the rules of writing it."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.status.builders import (
    NOW,
    POD,
    RUNNING,
    STARTED,
    TRAINING,
    ended_pod,
    failed_result,
    make_pod,
    make_run,
    make_view,
    ready,
    running,
    status_of,
    terminated,
    waiting,
)
from tests.unit.rl_operator.status.test_phase_and_action import ROWS

from rl_operator.api.status_fields import Checkpoint, ContainerStatus, RunStatus, SandboxPods
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import parse_stored_run
from rl_operator.documents.yaml_text import json_value
from rl_operator.status.attempt.view import View
from rl_operator.status.derived_status import frozen_refusals, frozen_settings, started, worth_writing
from rl_operator.status.observed.observation import ObservedTrainer
from rl_operator.status.text.phase_table import TABLE, Situation

GOLDEN = Path("tests/data/golden/status")
TRAINER = ObservedTrainer.model_validate(
    {
        "phase": "training",
        "step": 12,
        "totalSteps": 40,
        "secondsPerStep": 0.5,
        "checkpoint": {"step": 10, "statePath": "tinker://m/weights/10"},
        "metrics": {"rolloutReward": 0.71234, "loss": -0.1, "staleness": 0.5},
        "wandb": {"state": "disabled"},
    }
)
WORKING = make_view(RUNNING, pod=TRAINING, trainer=TRAINER)


@pytest.mark.parametrize("name", [*ROWS, "training with figures"])
def test_golden(name: str) -> None:
    """RL_UPDATE_GOLDEN=1 writes the files again; the diff is then for a person to judge."""
    view = WORKING if name == "training with figures" else ROWS[name][0]
    path = GOLDEN / f"{name.replace(' ', '-').replace(',', '').replace(':', '')}.json"
    text = json.dumps(status_of(view).to_wire(), indent=2) + "\n"
    if os.environ.get("RL_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("name", ROWS)
def test_conditions_match_the_table(name: str) -> None:
    view, situation, _reason, _verb = ROWS[name]
    row, status = TABLE[situation], status_of(view)
    assert status.phase == row.phase
    assert {c.type: c.status for c in status.conditions} == dict(row.conditions)


@pytest.mark.parametrize("name", ROWS)
def test_deriving_twice_changes_nothing(name: str) -> None:
    view = ROWS[name][0]
    status = status_of(view)
    if status.finished or status.attempts != view.run.status.attempts:
        return  # an ending is seen once: the next reconcile starts from the recorded attempt
    again = replace(view, run=view.run.with_changes(status=status))
    if view.trouble is None:
        assert status_of(again) == status


def test_a_status_stays_small() -> None:
    assert len(json.dumps(status_of(WORKING).to_wire())) < 2048


def test_success_carries_the_weights() -> None:
    status = status_of(ROWS["success"][0])
    assert status.weights.sampler_path == "tinker://m/sampler_weights/end"
    assert status.progress.percent == 100
    assert status.completion_time is not None


def test_only_application_failures_count_against_the_limit() -> None:
    assert status_of(ROWS["first failure"][0]).failed_attempts == 1
    assert status_of(ROWS["five attempts without a new step"][0]).failed_attempts is None


def test_start_time_is_set_once() -> None:
    names = {"pod_name": "p", "config_map_name": "c", "config_hash": "h"}
    first = started(make_view(), attempt=1, **names)
    assert first.start_time == "2026-05-01T12:00:00Z"
    later = make_view(first.to_wire(), now=NOW + timedelta(hours=1))
    assert started(later, attempt=2, **names).start_time == first.start_time


def test_history_has_at_most_ten_samples_over_the_run() -> None:
    view = make_view(RUNNING, pod=TRAINING)
    for step in range(1, 101):
        trainer = TRAINER.with_changes(
            step=step, total_steps=100, metrics=TRAINER.metrics.with_changes(rollout_reward=step / 100)
        )
        run = view.run.with_changes(status=status_of(View(view.run, NOW, 10.0, view.pod, trainer=trainer)))
        view = View(run, NOW, 10.0, view.pod, trainer=trainer)
    steps = [sample.step for sample in view.run.status.history]
    assert steps == [1, 11, 21, 31, 41, 51, 61, 71, 81, 91]


def test_steps_never_decrease() -> None:
    ahead = make_view(status_of(WORKING).to_wire(), pod=WORKING.pod, trainer=TRAINER.with_changes(step=3))
    progress = status_of(ahead).progress
    assert progress.step == 12


def ended(status: RunStatus, code: int) -> tuple[ContainerStatus, ...]:
    api, *others = status.containers
    return (api.with_changes(state="Terminated", exit_code=code), *others)


def unready(status: RunStatus) -> tuple[ContainerStatus, ...]:
    return tuple(container.with_changes(state="Running") for container in status.containers)


WRITES: dict[str, tuple[Callable[[RunStatus], RunStatus], bool]] = {
    "nothing new": (lambda status: status, False),
    "a figure": (lambda status: status.with_changes(message="Training: step 13 of 40."), False),
    "a phase": (lambda status: status.with_changes(phase="Stopping"), True),
    "a checkpoint": (lambda status: status.with_changes(checkpoint=None), True),
    "a container that ended in order": (lambda status: status.with_changes(containers=ended(status, 0)), True),
    "a container that is not ready for a moment": (
        lambda status: status.with_changes(containers=unready(status)),
        False,
    ),
    "a container that failed": (lambda status: status.with_changes(containers=ended(status, 137)), True),
    "some of the sandboxes": (lambda status: status.with_changes(sandboxes=SandboxPods(desired=4, ready=3)), False),
    "all sandboxes": (lambda status: status.with_changes(sandboxes=SandboxPods(desired=4, ready=4)), True),
    "a new generation": (lambda status: status.with_changes(observed_generation=2), True),
}


@pytest.mark.parametrize(("change", "at_once"), WRITES.values(), ids=WRITES)
def test_progress_is_paced_but_news_is_not(change: Callable[[RunStatus], RunStatus], at_once: bool) -> None:
    before = status_of(WORKING)
    after, soon = change(before), NOW + timedelta(seconds=5)
    assert worth_writing(before, after, soon, 60.0) is at_once
    assert worth_writing(before, after, NOW + timedelta(seconds=61), 60.0) is (after != before)


def test_each_first_state_of_a_container_is_news() -> None:
    """With its message: none of a start outlives what it is about."""
    creating = started(make_view(), attempt=1, pod_name=POD, config_map_name="c", config_hash="h")
    starts = [(waiting(), waiting()), (running(), waiting()), (ready(), running()), (ready(), ready())]
    for api, trainer in starts:
        pod = make_pod(api, trainer, trainer)
        status = status_of(make_view(creating.to_wire(), pod=pod))
        assert worth_writing(creating, status, NOW + timedelta(seconds=1), 60.0), status.message
        creating = status
    assert creating.phase == "Running"


def test_every_situation_has_a_row() -> None:
    assert set(TABLE) == set(Situation)


def test_a_start_is_announced_as_starting() -> None:
    status = started(make_view(), attempt=1, pod_name="p", config_map_name="c", config_hash="h")
    assert (status.phase, status.attempt, status.pod_name) == ("Starting", 1, "p")
    assert STARTED["phase"] == status.phase


def test_the_expiry_of_a_checkpoint_is_in_the_status() -> None:
    """As reported by the trainer while it runs, and by its result at the end."""
    expires = "2026-06-01T00:00:00Z"
    checkpoint = {"step": 10, "statePath": "tinker://m/weights/10", "expiresAt": expires}
    working = replace(WORKING, trainer=ObservedTrainer.model_validate({"step": 12, "checkpoint": checkpoint}))
    assert status_of(working).checkpoint == Checkpoint(step=10, state_path="tinker://m/weights/10", expires_at=expires)
    failed = failed_result("internal", "bug", checkpoint={"expiresAt": expires})
    over = ended_pod(terminated(1, failed))
    found = status_of(make_view(RUNNING, pod=over)).checkpoint
    assert found.expires_at == expires


SPEC = {"config": {"group_size": 8, "names": ["a", "b"]}, "trainer": {"learning_rate": 1e-3}}


def edited(**spec: Any) -> TrainingRun:
    """A run that started with SPEC and has this spec now."""
    run = make_run(STARTED, **SPEC)
    status = run.status.with_changes(frozen=frozen_settings(run.spec))
    return make_run(status.to_wire(), **spec)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (SPEC, []),
        ({**SPEC, "config": {"names": ["a", "b"], "group_size": 8.0}}, []),
        ({**SPEC, "suspend": True, "environmentReplicas": 3}, []),
        ({**SPEC, "config": {"group_size": 9, "names": ["a", "b"]}}, ["spec.config"]),
        ({**SPEC, "config": {"group_size": 8, "names": ["b", "a"]}}, ["spec.config"]),
        ({"config": SPEC["config"]}, ["spec.trainer"]),
        ({"config": {"group_size": True}, "trainer": {"learning_rate": "0.001"}}, ["spec.config", "spec.trainer"]),
    ],
    ids=str,
)
def test_edits_after_the_start(spec: dict[str, Any], fields: list[str]) -> None:
    refusals = frozen_refusals(edited(**spec))
    assert [r.field for r in refusals] == fields
    assert {r.code for r in refusals} <= {"FrozenField"}


def test_what_is_too_large_to_be_read_counts_as_unedited() -> None:
    run = edited(config={"group_size": 9}, trainer={"learning_rate": "x" * 900_000})
    assert [r.field for r in frozen_refusals(parse_stored_run(run.to_wire()))] == ["spec.config"]


def test_the_sentence_matches_the_api_servers() -> None:
    [refusal] = frozen_refusals(edited(config=SPEC["config"]))
    assert refusal.sentence == (
        "spec.trainer: it is frozen since the run started: make a new run for other settings"
    )  # tests/integration/cluster/test_crds.py expects it of the typed fields


def test_a_run_that_has_not_started_may_be_edited() -> None:
    assert frozen_refusals(make_run(**SPEC)) == ()


def test_a_run_without_frozen_settings_is_left_alone() -> None:
    """As stored before statuses had one."""
    assert frozen_refusals(make_run(STARTED, **SPEC)) == ()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_settings_stored_by_the_api_server_are_the_same(config: dict[str, Any]) -> None:
    run = make_run(config=config)
    stored = make_run(config=json_value(dict(reversed(config.items()))))
    assert frozen_settings(run.spec) == frozen_settings(stored.spec)


def start(view: View) -> RunStatus:
    return started(view, attempt=2, pod_name="p", config_map_name="c", config_hash="h")


def test_the_start_freezes_settings_and_the_next_attempt_keeps_them() -> None:
    first = start(make_view(spec=SPEC))
    assert first.frozen == frozen_settings(make_run(**SPEC).spec)
    run = edited(config={})
    view = View(run, NOW, 10.0, refusals=frozen_refusals(run))
    again = start(view)
    assert again.frozen == first.frozen
    assert [r.field for r in again.refusals] == ["spec.config", "spec.trainer"]


def test_phase_and_conditions_are_those_of_an_unedited_run() -> None:
    edit, plain = edited(config={}), edited(**SPEC)
    views = [View(run, NOW, 10.0, refusals=frozen_refusals(run)) for run in (edit, plain)]
    said = [status_of(view) for view in views]
    assert said[0].with_changes(refusals=()) == said[1]
    assert len(said[0].refusals) == 2
