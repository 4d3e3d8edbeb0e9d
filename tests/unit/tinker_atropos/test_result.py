"""The termination message: its wire form, its bound, and writing it where a rename is not possible."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.small_disks import filled, mounted, read_only

from rl_contract.status_metrics import ORIGINS, EvaluatedFigure, RunMetrics, reduced, wire_name
from rl_contract.trainer_messages import (
    MAX_BYTES,
    BestCheckpoint,
    EvaluatedFigures,
    ItemAccount,
    ResultBest,
    ResultCheckpoint,
    ResultError,
    TrainerResult,
)
from tinker_atropos.errors import DivergedError, InternalError
from tinker_atropos.result import ResultFile, encoded, write_reason, write_result

FULL = TrainerResult(
    attempt=2,
    total_steps=40,
    outcome="failed",
    from_step=12,
    steps_trained=25,
    training_run_id="run-1",
    state_path="tinker://run-1/weights/000025",
    sampler_path="tinker://run-1/sampler_weights/000025",
    checkpoint=ResultCheckpoint(expires_at="2026-12-24T18:00:00Z"),
    metrics=RunMetrics(rollout_reward=0.123456, loss=-0.5, held_out=EvaluatedFigure(value=0.123456, step=12_345)),
    error=ResultError(error_class="backend", message="the backend did not answer for 300 s"),
)


def test_the_wire_form_matches_the_contract() -> None:
    assert json.loads(encoded(FULL)) == {
        "schema": 1,
        "outcome": "failed",
        "attempt": 2,
        "fromStep": 12,
        "stepsTrained": 25,
        "totalSteps": 40,
        "trainingRunId": "run-1",
        "statePath": "tinker://run-1/weights/000025",
        "samplerPath": "tinker://run-1/sampler_weights/000025",
        "checkpoint": {"expiresAt": "2026-12-24T18:00:00Z"},
        "metrics": {
            "rolloutReward": 0.1235,
            "loss": -0.5,
            "heldOut": {"metric": "eval/percent_correct", "value": 0.1235, "step": 12_345},
        },
        "error": {"class": "backend", "message": "the backend did not answer for 300 s"},
    }


def test_a_run_without_error_has_no_error_field() -> None:
    assert "error" not in json.loads(encoded(TrainerResult(outcome="running")))


NUMBERS = st.dictionaries(st.sampled_from([wire_name(name) for name in reduced("step", "mean")]), st.floats(-1, 1))


@given(st.text(max_size=3000), NUMBERS)
def test_the_bound_holds_and_paths_survive(message: str, numbers: dict[str, float]) -> None:
    result = TrainerResult(
        outcome="failed",
        state_path=FULL.state_path,
        sampler_path=FULL.sampler_path,
        checkpoint=FULL.checkpoint,
        metrics=RunMetrics.of_numbers(numbers),
        error=ResultError(error_class="internal", message=message),
    )
    content = encoded(result)
    assert len(content) <= MAX_BYTES
    decoded = json.loads(content)
    assert (decoded["statePath"], decoded["samplerPath"]) == (FULL.state_path, FULL.sampler_path)
    assert decoded["error"]["class"] == "internal"


def test_a_message_that_fits_stays_whole_even_if_metrics_do_not() -> None:
    message = "größer " * 100
    failed = FULL.with_changes(metrics=METRICS, error=ResultError(error_class="internal", message=message))
    decoded = json.loads(encoded(failed))
    assert decoded["error"]["message"] == message
    assert 0 < len(decoded["metrics"]) < len(METRICS.known)


TINKER = "tinker://550e8400-e29b-41d4-a716-446655440000:train:0"
BEST = BestCheckpoint(
    step=1_250,
    held_out=EvaluatedFigure(value=0.9123, low=0.8934, high=0.9287, samples=640, step=1_250, temperature=1.0),
    state_path=f"{TINKER}/weights/attempt-1-step-001250",
    sampler_path=f"{TINKER}/sampler_weights/attempt-1-step-001250",
    expires_at="2026-12-24T18:00:00Z",
)
FIGURE = EvaluatedFigure(value=0.8123, low=0.7999, high=0.8244, samples=640, step=2_500, temperature=1.0)
METRICS = RunMetrics(**dict.fromkeys(ORIGINS, 0.8123) | {"held_out": FIGURE, "baseline": FIGURE})


def test_with_real_paths_the_best_and_the_held_out_figures_have_room() -> None:
    result = TrainerResult(
        attempt=12,
        total_steps=2_500,
        outcome="succeeded",
        from_step=1_225,
        steps_trained=2_500,
        training_run_id=TINKER.removeprefix("tinker://"),
        state_path=f"{TINKER}/weights/attempt-1-step-002500",
        sampler_path=f"{TINKER}/sampler_weights/attempt-1-step-002500",
        metrics=METRICS,
        best=ResultBest.of(BEST),
    )
    decoded = json.loads(encoded(result))
    assert BestCheckpoint.model_validate(decoded["best"]) == BEST
    assert decoded["metrics"].keys() >= {"heldOut", "baseline", "rolloutReward"}


def test_figures_of_the_evaluation_have_the_room_that_is_left() -> None:
    figure = EvaluatedFigure(value=0.1235, low=0.1111, high=0.2222, samples=640)
    rows = tuple(figure.with_changes(metric=f"eval/set_{number}/percent_correct") for number in range(16))
    figures = EvaluatedFigures(step=40, figures=rows, more=3)
    told = json.loads(encoded(FULL.with_changes(evaluation=figures)))["evaluation"]
    assert told["step"] == 40
    assert told["figures"][0] == rows[0].to_wire()
    assert 4 < len(told["figures"]) < 16
    assert len(told["figures"]) + told["more"] == 19
    crowded = FULL.with_changes(error=ResultError(error_class="internal", message="long " * 300), evaluation=figures)
    assert encoded(crowded) == encoded(crowded.with_changes(evaluation=None))


def test_items_have_room_before_figures_of_the_evaluation_and_after_metrics() -> None:
    result = FULL.with_changes(items=ItemAccount(seen=9, trained=8, dropped={"equal": 1}, under_way=0), error=None)
    assert json.loads(encoded(result))["items"] == {
        "seen": 9, "trained": 8, "dropped": {"equal": 1}, "underWay": 0, "again": 0,
    }  # fmt: skip
    crowded = result.with_changes(error=ResultError(error_class="internal", message="long " * 185))
    assert encoded(crowded) == encoded(crowded.with_changes(items=None))
    assert json.loads(encoded(crowded))["metrics"] == json.loads(encoded(result))["metrics"]


def test_the_best_at_the_last_step_does_not_repeat_its_paths() -> None:
    result = FULL.with_changes(
        best=ResultBest.of(BEST.with_changes(state_path=FULL.state_path, sampler_path=FULL.sampler_path))
    )
    best = json.loads(encoded(result))["best"]
    assert best["step"] == 1_250
    assert "statePath" not in best
    assert "samplerPath" not in best


def test_a_cut_message_keeps_its_beginning() -> None:
    error = ResultError(error_class="internal", message="first " + '"\n' * 2000)
    message = json.loads(encoded(TrainerResult(outcome="failed", error=error)))["error"]["message"]
    assert message.startswith("first ")
    assert message.endswith("~")
    assert len(message) > 300


def test_writing_keeps_the_same_file(tmp_path) -> None:
    path = tmp_path / "termination-log"
    path.write_text("x" * 5000)
    inode = path.stat().st_ino
    write_result(str(path), FULL)
    assert path.read_bytes() == encoded(FULL)
    assert path.stat().st_ino == inode, "it is a bind mount in a pod: a rename would lose it"


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_result(None, FULL)
    assert list(tmp_path.iterdir()) == []


def test_a_reason_is_one_bounded_line_and_replaces_no_result(tmp_path) -> None:
    path = tmp_path / "termination-log"
    write_reason(str(path), "no\n  space " + "left " * 1_000)
    assert path.read_text().startswith("error: no space left left ")
    assert path.stat().st_size == MAX_BYTES
    write_result(str(path), FULL)
    write_reason(str(path), "later")
    assert path.read_bytes() == encoded(FULL)
    write_reason(None, "nowhere")
    write_reason(str(tmp_path / "absent" / "file"), "the log has it")


def test_a_reason_is_cut_between_characters(tmp_path) -> None:
    path = tmp_path / "termination-log"
    write_reason(str(path), "é" * MAX_BYTES)
    assert path.read_text().removeprefix("error: ") == "é" * ((MAX_BYTES - len("error: ")) // len("é".encode()))


def test_a_folder_that_does_not_exist_is_an_error(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        write_result(str(tmp_path / "absent" / "file"), FULL)


def test_a_failure_has_the_last_metrics_that_are_known() -> None:
    """Not those of the last checkpoint, beside which the step's own were already reported."""
    results = ResultFile(None, FULL.with_changes(metrics=RunMetrics(rollout_reward=0.6)))
    results.write_failure(DivergedError("the loss is nan"), RunMetrics(rollout_reward=0.0))
    assert results.result.metrics == RunMetrics(rollout_reward=0.0)
    results.write_failure(DivergedError("the loss is nan"))
    assert results.result.metrics == RunMetrics(rollout_reward=0.0)


@pytest.mark.parametrize("unwritable", [filled, read_only])
def test_a_full_disk_keeps_the_result_until_there_is_room(process: None, tmp_path: Path, unwritable) -> None:
    with mounted(tmp_path / "disk", "64k") as disk, ThreadPoolExecutor(1) as thread:
        (disk / "result").touch()
        file = ResultFile(str(disk / "result"), TrainerResult(outcome="running"))
        with unwritable(disk):
            file.write(steps_trained=3)  # that of a checkpoint: it does not wait
            ending = thread.submit(file.write, outcome="succeeded")
            with pytest.raises(TimeoutError):
                ending.result(0.1)
        ending.result(60)
        assert json.loads((disk / "result").read_text())["outcome"] == "succeeded"


def test_a_result_that_may_not_be_written_is_an_error_that_says_where(tmp_path: Path) -> None:
    with pytest.raises(InternalError) as caught:
        ResultFile(str(tmp_path), TrainerResult(outcome="running")).write()
    assert str(tmp_path) in str(caught.value)
