"""When a local run needs a supervisor."""

from typing import Any

import pytest

from rl_operator.operator_errors import GoneError
from rl_operator.targets.supervisors import is_at_rest, owner


def condition(type_: str, value: str = "True") -> dict[str, Any]:
    return {"observedGeneration": 2, "conditions": [{"type": type_, "status": value}]}


@pytest.mark.parametrize(
    ("status", "rests"),
    [
        pytest.param({}, False, id="new"),
        pytest.param({"phase": "Succeeded", "observedGeneration": 1}, True, id="finished, edited since"),
        pytest.param({"phase": "Failed"}, True, id="failed"),
        pytest.param({"phase": "Running", "observedGeneration": 2}, False, id="running"),
        pytest.param(condition("Suspended"), True, id="stopped"),
        pytest.param(condition("Stalled"), True, id="refused"),
        pytest.param(condition("Stalled", "False"), False, id="not refused any more"),
        pytest.param(condition("Stalled") | {"observedGeneration": 1}, False, id="refused, edited since"),
    ],
)
def test_a_run_is_at_rest_if_only_an_outside_write_can_move_it(status: dict[str, Any], rests: bool) -> None:
    assert is_at_rest({"metadata": {"generation": 2}, "status": status}) == rests


def test_a_pod_without_a_run_is_named() -> None:
    with pytest.raises(GoneError, match="pod stray belongs to no run"):
        owner({"metadata": {"name": "stray"}})
