from typing import Any

import pytest
from tests.unit.rl_operator.tools.contexts import Call, drafted, refusal

from rl_operator.tools.call_context import CallContext


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
