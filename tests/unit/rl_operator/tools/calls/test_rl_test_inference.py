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
