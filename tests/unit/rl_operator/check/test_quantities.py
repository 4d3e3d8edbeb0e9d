from decimal import Decimal

import pytest

from rl_operator.api.spec_parts.container_resources import ResourceRequirements, parse_quantity
from rl_operator.check.quantities import resource_faults


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [(2, 2), ("2", 2), ("500m", Decimal("0.5")), (".5", Decimal("0.5")), ("1.", 1), ("1Ki", 1024),
     ("1.5Gi", 1610612736), ("1k", 1000), ("1e3", 1000), ("1E", 10**18), ("12E2", 1200)],
)  # fmt: skip
def test_amounts(quantity: str | int, amount: Decimal) -> None:
    assert parse_quantity(quantity) == amount


@pytest.mark.parametrize("quantity", ["", "half", "-1", -1, "1 Gi", "1gi", "1GiB", "Gi", "0x10", "1e", "١"])
def test_invalid_quantities(quantity: str | int) -> None:
    assert parse_quantity(quantity) is None


@pytest.mark.parametrize(
    ("resources", "field", "word"),
    [
        ({"limits": {"memory": "-1Gi"}}, "spec.resources.limits.memory", "quantity"),
        ({"limits": {"memory": 0}}, "spec.resources.limits.memory", "none at all"),
        ({"limits": {"ephemeral-storage": "0.0Gi"}}, "spec.resources.limits.ephemeral-storage", "none at all"),
        ({"limits": {"gpus": 1}}, "spec.resources.limits.gpus", "nvidia.com/gpu"),
        ({"requests": {"$(X)": 1}}, 'spec.resources.requests["$(X)"]', "no such resource"),
        ({"requests": {"cpu": 2}, "limits": {"cpu": 1}}, "spec.resources.requests.cpu", "cannot exceed"),
    ],
)
def test_quantities_a_pod_must_not_have(resources: dict[str, dict[str, str | int]], field: str, word: str) -> None:
    (fault,) = resource_faults(("spec", "resources"), ResourceRequirements(**resources))
    assert (fault.field, word in fault.sentence) == (field, True), fault.sentence


def test_quantities_a_pod_may_have() -> None:
    resources = ResourceRequirements(requests={"cpu": 0}, limits={"nvidia.com/gpu": 0, "hugepages-2Mi": "4Mi"})
    assert not list(resource_faults(("spec", "resources"), resources))
