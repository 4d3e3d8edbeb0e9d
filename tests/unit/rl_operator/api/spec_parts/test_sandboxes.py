"""What one sandbox pod gets: always a limit on everything, never more than the runtime allows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.api.spec_parts.container_resources import ResourceRequirements, parse_quantity
from rl_operator.api.spec_parts.sandboxes import LIMITS, REQUESTS, RuntimeSandboxes, sandbox_resources


def given_to(asked: dict[str, Any], **bounds: Any) -> dict[str, Any]:
    return sandbox_resources(ResourceRequirements(**asked), RuntimeSandboxes(**bounds)).to_wire()


def test_defaults() -> None:
    assert given_to({}) == {"requests": dict(REQUESTS), "limits": dict(LIMITS)}


def test_a_limit_of_the_run() -> None:
    resources = given_to({"limits": {"memory": "2Gi"}})
    assert resources["limits"] == {**LIMITS, "memory": "2Gi"}


def test_a_small_limit_lowers_the_request() -> None:
    resources = given_to({"limits": {"memory": "64Mi"}})
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == ("64Mi", "64Mi")


def test_a_large_request_raises_the_limit() -> None:
    resources = given_to({"requests": {"memory": "3Gi"}})
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == ("3Gi", "3Gi")


def test_the_runtime_bounds_the_defaults() -> None:
    assert given_to({}, max_resources={"memory": "200Mi"})["limits"] == {**LIMITS, "memory": "200Mi"}


def test_what_kubernetes_has_besides() -> None:
    resources = given_to({"requests": {"nvidia.com/gpu": 1}})
    assert (resources["requests"]["nvidia.com/gpu"], resources["limits"]["nvidia.com/gpu"]) == (1, 1)


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("registry.example/agents/swe:1", True),
        ("registry.example/agents", False),
        ("busybox", True),
        ("busybox:1", False),
        ("own", True),
        ("evil/registry.example/agents/swe", False),
        ("sets[12]/x", True),
        ("sets1/x", False),
    ],
)
def test_images(image: str, allowed: bool) -> None:
    bounds = RuntimeSandboxes(image="own", images=("registry.example/agents/*", "busybox", "sets[12]/*"))
    assert bounds.allows(image) is allowed


QUANTITIES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage"]), st.sampled_from(["10m", "1", "64Mi", "3Gi", "100Gi"])
)


@given(QUANTITIES, QUANTITIES, QUANTITIES)
def test_everything_is_limited(requests: dict[str, Any], limits: dict[str, Any], most: dict[str, Any]) -> None:
    resources = given_to({"requests": requests, "limits": limits}, max_resources=most)
    assert set(resources["limits"]) == set(LIMITS)
    for name, request in resources["requests"].items():
        if not (name in requests and name in limits):  # the check refuses a request above its limit
            assert (parse_quantity(request) or 0) <= (parse_quantity(resources["limits"][name]) or 0)
    for name, limit in resources["limits"].items():
        if name not in requests and name not in limits:
            highest = RuntimeSandboxes(max_resources=most).most()[name]
            assert (parse_quantity(limit) or 0) <= (parse_quantity(highest) or 0)
