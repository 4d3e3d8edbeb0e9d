from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.strategies import SECRET
from tests.unit.rl_operator.tools.contexts import Call, call_at, drafted, write_status
from tests.unit.rl_operator.tools.recorded import NAMES, recorded

from rl_contract.trainer_messages import MOST_FIGURES
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.catalog_and_history import history_config_map
from rl_operator.tools.answers.changed_settings import MOST_FIELDS
from rl_operator.tools.answers.shown_text import tokens
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_get_results import evenly, results_of

WEIGHTS = {"samplerPath": "tinker://s/sampler_weights/1", "statePath": "tinker://s/weights/1"}


def test_a_run_without_weights(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    outcome = call("rl_sample", prompt="sort 4 1 3 2")
    assert outcome.code == "refused"
    assert outcome.answer["error"] == f"{run_id} has no weights: it is draft; rl_check_status says why, and what to do"
    call("rl_start_training")
    said = call("rl_sample", prompt="sort 4 1 3 2").answer["error"]
    assert said == f"{run_id} has no weights: it is pending; rl_check_status with wait_seconds waits for them"


def test_a_shared_server_has_no_key_to_sample_with(context: CallContext) -> None:
    run_id = drafted(context, runtime="default")
    write_status(context, run_id, phase="Succeeded", weights=WEIGHTS)
    refused = call_at(replace(context, variables=None), "rl_sample", prompt="x")
    assert f"rlctl sample {run_id} PROMPT" in refused.answer["error"]
    own = call_at(replace(context, variables={}), "rl_sample", prompt="x")
    assert "TINKER_API_KEY is not set" in own.answer["error"]


@pytest.mark.parametrize(
    "arguments",
    [{"prompt": ""}, {"count": 17}, {"max_tokens": 1025}, {"temperature": 2.1}, {"seed": -1}, {"prompt": "x" * 8001}],
    ids=str,
)
def test_limits(call: Call, arguments: dict[str, Any]) -> None:
    outcome = call("rl_sample", **{"prompt": "x", **arguments})
    assert outcome.code == "refused"
    assert outcome.answer["error"].startswith(f"{next(iter(arguments))} is ")


STARTED = "2026-11-22T00:30:00Z"
METRICS = {
    "rolloutReward": 0.9,
    "heldOut": {"value": 0.8, "low": 0.7, "high": 0.9, "samples": 64},
    "baseline": {"value": 0.1},
}


def over(context: CallContext, **status: Any) -> TrainingRun:
    return write_status(context, drafted(context), **{"phase": "Succeeded", "startTime": STARTED, **status})


def test_metrics_and_weights_of_a_success(context: CallContext, call: Call) -> None:
    weights = {"samplerPath": "tinker://s", "statePath": "tinker://w", "expiresAt": STARTED}
    checkpoint = {"step": 40, "statePath": "tinker://w"}
    items = {"seen": 9, "trained": 8, "dropped": {"equal": 1}, "underWay": 0, "again": 0}
    run = over(context, metrics=METRICS, weights=weights, checkpoint=checkpoint, items=items)
    answer = call("rl_get_results").answer
    assert answer["run_id"] == run.metadata.name
    assert answer["status"] == "completed"
    assert answer["weights"] == {"sampler_path": "tinker://s", "state_path": "tinker://w", "expires_at": STARTED}
    assert "checkpoint" not in answer
    assert answer["items"] == items
    assert answer["final_metrics"] == {
        "reward_mean": 0.9,
        "eval_percent_correct": 0.8,
        "baseline": 0.1,
        "eval_interval": [0.7, 0.9],
        "eval_metric": "eval/percent_correct",
        "eval_samples": 64,
    }


def test_all_figures_of_the_newest_evaluation(context: CallContext, call: Call) -> None:
    names = [f"{'s' * 40}/greedy_percent_{number:02}" for number in range(MOST_FIGURES)]
    known = {"value": 0.8125, "low": 0.7125, "high": 0.9125, "samples": 640}
    figures = [{"metric": f"eval/{name}", **known} for name in names]
    unknown = {"metric": f"eval/{names[0]}", "value": 0.5}
    over(context, metrics=METRICS, evaluation={"step": 40, "figures": [unknown, *figures[1:]], "more": 3})
    told = call("rl_get_results").answer["held_out"]
    assert (told["step"], told["more"], list(told["figures"])) == (40, 3, names)
    assert told["figures"][names[0]] == {"value": 0.5}
    assert told["figures"][names[1]] == {"value": 0.8125, "interval": [0.7125, 0.9125], "n": 640}
    assert tokens(told) < 1_000, "as much as there can be"


def test_what_the_run_changed(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    values = {"learning_rate": 2e-3, "group_size": 8, "total_steps": 30, "custom_thinking_prompt": "x" * 100}
    assert call("rl_edit_config", values=values).code is None
    write_status(context, run_id, phase="Succeeded", startTime=STARTED)
    changed = {"total_steps": 30, "learning_rate": 2e-3, "custom_thinking_prompt": f'"{"x" * 78}…'}
    assert call("rl_get_results").answer["changed_config"] == changed, "a group has eight anyway"
    [line] = call("rl_list_runs").answer["runs"]
    assert line["changed_config"] == changed


def test_a_run_that_changes_nothing_or_much(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    assert "changed_config" not in call("rl_get_results").answer
    many = {f"field_{number:02}": SECRET for number in range(20)}
    context.target.change_spec("default", run_id, {"config": many})
    [line] = call("rl_list_runs").answer["runs"]
    assert (len(line["changed_config"]), line["more_changed"]) == (MOST_FIELDS, 20 - MOST_FIELDS)
    assert SECRET not in str(line)


def test_a_failure_has_its_checkpoint_and_its_reason(context: CallContext, call: Call) -> None:
    failure = {"reason": "TrainerFailed", "message": "no more"}
    run = over(context, phase="Failed", failure=failure, checkpoint={"step": 3, "statePath": "tinker://w"})
    answer = call("rl_get_results", run_id=run.metadata.name[-8:]).answer
    assert answer["checkpoint"] == {"step": 3, "state_path": "tinker://w"}
    assert answer["failure"]["code"] == "TrainerFailed"


def test_the_curve_of_the_status(context: CallContext, call: Call) -> None:
    over(context, history=[{"step": step, "rolloutReward": step / 10} for step in range(10)])
    history = call("rl_get_results", samples=4).answer["history"]
    assert history == [{"step": step, "reward_mean": step / 10} for step in (0, 3, 6, 9)]


def test_the_stored_curve(context: CallContext, call: Call) -> None:
    run = over(context, history=[{"step": 1, "rolloutReward": 0.1}])
    points = [{"step": step, "rolloutReward": step / 100} for step in range(1, 101)] + [{"step": 101, "loss": 0.5}]
    series = history_config_map(run, "kept", points)
    context.target.apply(series)
    write_status(context, run.metadata.name, phase="Succeeded", historyName=series["metadata"]["name"])
    history = call("rl_get_results").answer["history"]
    assert len(history) == 10
    assert history[0] == {"step": 1, "reward_mean": 0.01}
    assert history[-1] == {"step": 100, "reward_mean": 1.0}


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_run_has_results(context: CallContext, name: str) -> None:
    answer = results_of(context, TrainingRun.model_validate(recorded(name)))
    assert answer["run_id"] == "sorting"
    assert None not in answer.values()


@given(st.integers(0, 600), st.integers(1, 100))
def test_samples_are_spread_evenly(count: int, most: int) -> None:
    points = [{"step": step} for step in range(count)]
    steps = [point["step"] for point in evenly(points, most)]
    assert len(steps) == min(count, most)
    assert steps == sorted(set(steps))
    assert not steps or steps[-1] == count - 1
    gaps = [later - earlier for earlier, later in pairwise(steps)]
    assert not gaps or max(gaps) - min(gaps) <= 1
