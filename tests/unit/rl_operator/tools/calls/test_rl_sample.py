"""What rl_sample refuses before it calls anything. Real weights: tests/integration/local/test_weights.py."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.rl_operator.tools.contexts import call_at, drafted, write_status

from rl_operator.tools.call_context import CallContext
from rl_operator.tools.toolset import Outcome

Call = Callable[..., Outcome]
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
