import copy
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest
from tests.unit.rl_operator.tools.recorded import NAMES, recorded

from rl_operator.api.refusal import RefusalCode
from rl_operator.api.status_fields import Phase
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.attempt_outcome import RAISE, RESUME
from rl_operator.status.text.reasons import REASONS
from rl_operator.tools.answers.run_status import RETRYABLE, failure_of, metrics_of, status_of, wandb_of
from rl_operator.tools.answers.shown_text import tokens
from rl_operator.tools.runs import STATES

NOW = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)
LIMIT = 300
STARTED = "2026-11-22T00:30:00Z"

LONG = "x" * 512
FULL: dict[str, Any] = {
    "phase": "Running",
    "message": LONG,
    "startTime": STARTED,
    "progress": {"step": 1250, "totalSteps": 2500, "percent": 50, "secondsPerStep": 61.25, "etaSeconds": 76563},
    "metrics": {
        "rolloutReward": 0.1234,
        "trainAccuracy": 0.4321,
        "heldOut": {"value": 0.5678},
        "baseline": {"value": 0.0123},
        "loss": -0.0123,
    },
    "cost": {"amount": 12.3456, "currency": "USD", "budget": 20.0},
    "containers": [{"name": name, "state": "Ready"} for name in ("api", "trainer", "environment")],
    "wandb": {"url": "https://wandb.ai/some-team/some-project/runs/" + "u" * 36, "runId": "u" * 36, "state": "running"},
    "checkpoint": {"step": 1225, "statePath": "tinker://" + "p" * 80},
    "failure": {"reason": "BackendUnreachable", "container": "trainer", "exitCode": 4, "message": "m" * 300},
    "refusals": [{"code": "LockedField", "field": "spec.config.total_steps", "locked": 2500, "hint": "h" * 400}] * 3,
}


def run_of(**status: Any) -> TrainingRun:
    return parsed(run_manifest(**status))


def answer_of(**status: Any) -> dict[str, Any]:
    return status_of(run_of(**status), NOW)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_status_gives_a_small_answer(name: str) -> None:
    answer = status_of(TrainingRun.model_validate(recorded(name)), NOW)
    assert answer["status"] in set(STATES.values())
    assert answer["message"]
    assert None not in answer.values()
    assert tokens(answer) < LIMIT


@pytest.mark.parametrize("phase", get_args(Phase))
def test_every_phase_and_reason_gives_a_small_answer(phase: Phase) -> None:
    for reason in REASONS:
        condition = {"type": "Stalled", "status": "True", "reason": reason, "lastTransitionTime": STARTED}
        failure = {"reason": reason, "container": "trainer", "exitCode": 1, "message": "m" * 300}
        answer = answer_of(**{**FULL, "phase": phase, "conditions": [condition], "failure": failure})
        assert (answer["status"], answer["failure"]["code"]) == (STATES[phase], reason)
        assert answer["more_refusals"] == 2
        assert tokens(answer) < LIMIT


def test_every_refusal_gives_a_small_answer() -> None:
    for code in get_args(RefusalCode):
        refusal = {"code": code, "field": "spec.config.x", "allowed": ["v" * 40] * 9, "given": "g" * 120, "hint": LONG}
        answer = answer_of(phase="Pending", message=LONG, refusals=[refusal] * 3)
        assert [each["code"] for each in answer["refusals"]] == [code] * 3
        assert tokens(answer) < LIMIT


@given(st.text(max_size=400), st.text(max_size=300), st.text(min_size=1, max_size=128))
@example("m" * 41, "s" * 41, "n" * 41)
@example("m" * 400, "s" * 300, "n" * 128)
def test_any_text_is_one_line_and_small(message: str, said: str, name: str) -> None:
    failure = {"reason": "TrainerFailed", "message": said}
    manifest = run_manifest(spec={"wandb": {"name": name}}, **{**FULL, "message": message, "failure": failure})
    answer = status_of(TrainingRun.model_validate(manifest), NOW)
    assert tokens(answer) < LIMIT
    assert not any(sign in f"{answer}" for sign in ("\\n", "\\x1b", "\n"))


def test_everything_agents_learn() -> None:
    plain = copy.deepcopy(FULL) | {"message": "Training.", "refusals": []}
    plain["failure"]["message"] = "no answer for 600 s"
    assert answer_of(**plain) == {
        "run_id": "sorting",
        "environment": "sort_digits",
        "status": "running",
        "message": "Training.",
        "running_time_minutes": 30.0,
        "processes": {"api": "running", "trainer": "running", "env": "running"},
        "progress": {
            "step": 1250,
            "total_steps": 2500,
            "percent": 50,
            "seconds_per_step": 61.25,
            "eta_seconds": 76563,
        },
        "metrics": {
            "step": 1250,
            "state": "running",
            "reward_mean": 0.1234,
            "percent_correct": 0.4321,
            "eval_percent_correct": 0.5678,
            "loss": -0.0123,
            "baseline": 0.0123,
        },
        "cost": {"amount": 12.3456, "currency": "USD", "budget": 20.0},
        "wandb_url": plain["wandb"]["url"],
        "wandb_project": "some-project",
        "wandb_run_name": "sorting",
        "checkpoint_step": 1225,
        "failure": {
            "code": "BackendUnreachable",
            "hint": REASONS["BackendUnreachable"].advice,
            "retryable": True,
            "message": "no answer for 600 s",
        },
        "observed_at": "2026-11-22T01:00:00Z",
        "next_check_in_seconds": 1800,
    }


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"state": "Running"}, "running"),
        ({"state": "Ready"}, "running"),
        ({"state": "Waiting", "reason": "ImagePullBackOff"}, "waiting (ImagePullBackOff)"),
        ({"state": "Waiting"}, "waiting"),
        ({"state": "Terminated", "exitCode": 0}, "exited (0)"),
        ({"state": "Terminated", "exitCode": 137}, "exited (137)"),
    ],
)
def test_processes(container: dict[str, Any], words: str) -> None:
    containers = [{"name": "trainer", **container}, {"name": "someone-elses", "state": "Running"}]
    assert answer_of(containers=containers)["processes"] == {"trainer": words}


def test_environments_in_separate_pods() -> None:
    assert answer_of(environments={"desired": 3, "ready": 2})["processes"] == {"env": "2 of 3 running"}


@pytest.mark.parametrize(
    ("status", "minutes"),
    [
        ({}, None),
        ({"startTime": STARTED}, 30.0),
        ({"startTime": STARTED, "phase": "Succeeded", "completionTime": "2026-11-22T00:36:30Z"}, 6.5),
        (
            {
                "startTime": STARTED,
                "phase": "Stopped",
                "attempts": [{"attempt": 1, "pod": "p", "ended": "2026-11-22T00:45:00Z"}],
            },
            15.0,
        ),
    ],
)
def test_the_duration_of_a_run(status: dict[str, Any], minutes: float | None) -> None:
    assert answer_of(**status).get("running_time_minutes") == minutes


@pytest.mark.parametrize(
    ("state", "word", "trouble"),
    [
        ("running", "running", None),
        ("disabled", "disabled", None),
        ("finished; W&B says crashed", "crashed", None),
        ("offline: rlctl says wandb sync DIR", "offline", "offline: rlctl says wandb sync DIR"),
        ("failed: no such entity", "failed", "failed: no such entity"),
    ],
)
def test_the_data_at_wandb(state: str, word: str, trouble: str | None) -> None:
    run = run_of(wandb={"state": state})
    assert metrics_of(run)["state"] == word
    assert wandb_of(run)["wandb_error"] == trouble


def test_keys_in_messages_are_not_repeated() -> None:
    secret = "tml-abcdefgh12345678"
    failure = {"reason": "TrainerFailed", "message": f"refused {secret}"}
    wandb = {"state": f"failed: {secret}"}
    assert secret not in str(answer_of(message=f"key {secret}", failure=failure, wandb=wandb))


def test_retryable_failures_are_among_the_reasons() -> None:
    assert set(REASONS) >= RETRYABLE
    unknown = run_of(failure={"reason": "FromANewerRelease", "message": "what it said"}).status.failure
    assert unknown
    assert failure_of(unknown) == {"code": "FromANewerRelease", "retryable": False, "message": "what it said"}


def test_a_slow_clock() -> None:
    run = run_of(startTime=STARTED)
    assert status_of(run, NOW - timedelta(days=1))["running_time_minutes"] == 0.0


def test_a_stopped_run_says_which_tool_resumes_it() -> None:
    message = f"Stopped with a checkpoint of step 3; to resume, {RESUME % 'sorting'}."
    stopped = run_manifest(spec={"suspend": True}, phase="Stopped", message=message, startTime=STARTED)
    answer = status_of(parsed(stopped), NOW)
    assert answer["message"] == "Stopped with a checkpoint of step 3; to resume, call rl_start_training."


def test_a_run_at_its_budget_names_no_command() -> None:
    message = f"BudgetReached: 9.00 of 10.00 USD spent; to go on, {RAISE % 'sorting'}."
    answer = status_of(parsed(run_manifest(phase="Stopped", message=message, startTime=STARTED)), NOW)
    assert answer["message"] == "BudgetReached: 9.00 of 10.00 USD spent; to go on, have someone raise spec.budget."
