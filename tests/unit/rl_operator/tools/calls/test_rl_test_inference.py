"""rl_test_inference, and from the output of processes to metrics."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.tools.contexts import Call, drafted, refusal

from rl_operator.targets.target import JobContainer
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_test_inference import ModelResult, Printed, TrialStep, model_result, read_log, summary


def test_an_openenv_server_is_tried_by_a_run(context: CallContext, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_INFERENCE_URL", "http://127.0.0.1:9/v1")
    environment: dict[str, Any] = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLEnvironment",
        "metadata": {"name": "echo", "namespace": "default"},
        "spec": {"openenv": {"url": "http://127.0.0.1:8000"}},
    }
    context.target.apply(environment)
    drafted(context, "own/echo")
    assert (
        "own/echo needs its OpenEnv server beside it; start a run of a few steps"
        in refusal(call("rl_test_inference", models=["small"]))["error"]
    )


REFUSED = {
    "no provider": ({}, {}, "runtime tiny names no provider"),
    "no URL": ({"RL_INFERENCE_URL": "models.example"}, {}, "RL_INFERENCE_URL is 'models.example'; it must be a URL"),
    "no model": ({"RL_INFERENCE_URL": "http://127.0.0.1:9/v1"}, {}, "name the models to test in `models`"),
    "too many steps": ({}, {"num_steps": 10_000}, "num_steps is 10000"),
}


@pytest.mark.parametrize(("env_vars", "arguments", "said"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_test_is_refused_with_what_to_do(  # noqa: PLR0917 -- two fixtures, and the table's columns
    context: CallContext,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    env_vars: dict[str, str],
    arguments: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.delenv("RL_INFERENCE_URL", raising=False)
    for name, value in env_vars.items():
        monkeypatch.setenv(name, value)
    drafted(context)
    assert said in refusal(call("rl_test_inference", **arguments))["error"]


SCORES = st.lists(st.sampled_from([-1.0, 0.0, 0.25, 1.0]), max_size=8)


def line(event: str, **wire: Any) -> str:
    return json.dumps({"event": event, **wire}) + "\n"


def step_line(number: int, scores: list[float]) -> str:
    correct = sum(score > 0 for score in scores)
    return line("step", step=number, completions=len(scores), correct=correct, scores=scores, seconds=0.1)


def result(model: str, *groups: list[float], error: str = "") -> ModelResult:
    lines = [step_line(number, scores) for number, scores in enumerate(groups, 1)]
    return ModelResult(model, "completed", read_log(lines).steps, error)


def test_a_log_is_read_between_other_output() -> None:
    log = [
        "2026 INFO loading\n",
        line("started", model="m"),
        step_line(1, [1.0, 0.0]),
        "half a line" + step_line(2, [0.0]),
        '{"event": "step", "step": "many"}\n',
        '{"event": broken\n',
        "Traceback: sk-abcdef0123456789\n",
        line("summary", error="not done within 600 s"),
    ]
    printed = read_log(log)
    assert [(step.completions, step.correct) for step in printed.steps] == [(2, 1), (1, 0)]
    assert (printed.over, printed.error) == (True, "not done within 600 s")
    assert printed.talk == '2026 INFO loading\n{"event": broken\nTraceback: [redacted]\n'


def test_a_log_that_was_cut_off_keeps_its_steps() -> None:
    printed = read_log([step_line(1, [1.0]), '{"event": "step", "step": 2, "comp'])
    assert (len(printed.steps), printed.over) == (1, False)


@given(st.lists(st.text(max_size=60) | st.from_regex(r'\{"event": "(step|summary)".{0,60}\}', fullmatch=True)))
def test_any_log_content_is_read_and_shown(lines: list[str]) -> None:
    printed = read_log(lines)
    shown = ModelResult("m", "completed", printed.steps, printed.error or "e", printed.talk).to_wire(steps=True)
    assert len(json.dumps(shown)) < 20_000


def test_the_metrics_of_a_model() -> None:
    wire = result("qwen/qwen3-8b", [1.0, 0.0, -1.0], [0.0], [0.5, 0.5]).to_wire(steps=False)
    assert wire == {
        "model": "qwen/qwen3-8b",
        "name": "qwen3-8b",
        "scale": "small",
        "state": "completed",
        "steps_tested": 3,
        "total_completions": 6,
        "correct_completions": 3,
        "accuracy": 0.5,
        "steps_with_correct": 2,
        "step_success_rate": 0.6667,
    }


def test_steps_are_shown_on_request_without_keys_and_cut() -> None:
    agent = {"turns": 4, "tool_calls": 2}
    wire = {"event": "step", "step": 1, "completions": 1, "correct": 0, "error": "sk-abcdef0123456789 " * 100, "own": 1}
    wire |= {"agent": agent}
    shown = ModelResult("m", "completed", [TrialStep(1, 0, wire)]).to_wire(steps=True)
    assert shown["scale"] == "custom"
    [step] = shown["steps"]
    assert set(step) == {"step", "completions", "correct", "agent", "error"}
    assert step["agent"] == agent
    assert "abcdef" not in step["error"]
    assert len(step["error"]) == 500


def test_the_last_output_is_shown_only_with_an_error() -> None:
    assert "stderr" not in ModelResult("m", "completed", talk="fine").to_wire(steps=False)
    failed = ModelResult("m", "failed", error="gone", talk="fine").to_wire(steps=False)
    assert (failed["error"], failed["stderr"]) == ("gone", "fine")


def test_no_part_of_a_key_is_left_at_the_cut() -> None:
    talk = read_log([f"Bearer abcdefghijkl \x1b[31m{'x' * 490}\n", "y" * 499]).talk
    assert talk.endswith("y" * 499 + "\n")
    assert "ghijkl" not in talk
    assert "\x1b" not in talk


SUMMARIES = {
    "the best is the one with the highest accuracy": (
        [result("a", [1.0, 0.0]), result("b", [1.0, 1.0]), result("c", [1.0, 1.0])],
        {"models_tested": 3, "models_succeeded": 3, "best_model": "b", "avg_accuracy": 0.8333},
    ),
    "a model that was never scored counts for nothing": (
        [result("a", [1.0, 0.0]), result("b", [], error="the provider answered 404")],
        {"models_tested": 2, "models_succeeded": 1, "best_model": "a", "avg_accuracy": 0.5},
    ),
    "a model that was cut off counts with what it did": (
        [result("a", [1.0], error="not done within 600 s")],
        {"models_tested": 1, "models_succeeded": 1, "best_model": "a", "avg_accuracy": 1.0},
    ),
    "where all is wrong none is best, and the environment works": (
        [result("a", [0.0]), result("b", [0.0])],
        {"models_tested": 2, "models_succeeded": 2, "avg_accuracy": 0.0},
    ),
}


@pytest.mark.parametrize(("results", "figures"), SUMMARIES.values(), ids=SUMMARIES)
def test_summaries(results: list[ModelResult], figures: dict[str, Any]) -> None:
    assert summary(results, 3) == {"steps_requested": 3, "environment_working": True, **figures}


def test_an_environment_that_scored_nothing_does_not_work() -> None:
    figures = summary([result("a", error="it ended before its summary")], 2)
    assert figures == {
        "steps_requested": 2,
        "models_tested": 1,
        "models_succeeded": 0,
        "avg_accuracy": 0.0,
        "environment_working": False,
    }


@given(st.lists(st.lists(SCORES, max_size=4), max_size=4))
def test_metrics_are_fractions(models: list[list[list[float]]]) -> None:
    results = [result(f"m{number}", *groups) for number, groups in enumerate(models)]
    figures = summary(results, 4)
    assert 0 <= figures["avg_accuracy"] <= 1
    assert figures["models_succeeded"] <= figures["models_tested"] == len(models)
    rates = [each.to_wire(steps=False)[name] for each in results for name in ("accuracy", "step_success_rate")]
    assert all(0 <= rate <= 1 for rate in rates)


ONE = (TrialStep(2, 1, {}),)

CASES = {
    "no pod yet": (JobContainer("waiting", "Unschedulable: no room"), Printed(), ("waiting", "Unschedulable: no room")),
    "at work": (JobContainer("running"), Printed(ONE), ("running", "")),
    "done": (JobContainer("ended"), Printed(ONE, over=True), ("completed", "")),
    "done, with an error": (JobContainer("ended", "exited (3)"), Printed((), True, "no key"), ("failed", "no key")),
    "done, while what it left behind goes on": (JobContainer("running"), Printed(ONE, over=True), ("completed", "")),
    "killed": (
        JobContainer("ended", "exited (137) OOMKilled"),
        Printed(ONE),
        ("failed", "it ended before its summary: exited (137) OOMKilled"),
    ),
}


@pytest.mark.parametrize(("container", "printed", "expected"), CASES.values(), ids=CASES)
def test_the_part_of_one_model(container: JobContainer, printed: Printed, expected: tuple[str, str]) -> None:
    found = model_result("m", container, printed)
    assert (found.state, found.error) == expected
    assert found.steps == printed.steps
