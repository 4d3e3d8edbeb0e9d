import pytest

from rl_operator.targets.runs.run_lookup import environment_pods

NAMES = [
    "sorting-0a1b2-1",
    "sorting-0a1b2-2",
    "sorting-0a1b2-1-env-0-5",
    "sorting-0a1b2-2-env-1-2",
    "sorting-0a1b2-2-env-1-10",
    "sorting-0a1b2-2-env-0-0",
    "sorting-2-0a1b2-2-env-0-9",
    "sorting-0a1b2-22-env-0-9",
]


@pytest.mark.parametrize(
    ("run_pod", "found"),
    [
        ("sorting-0a1b2-2", {0: "sorting-0a1b2-2-env-0-0", 1: "sorting-0a1b2-2-env-1-10"}),
        ("sorting-0a1b2-1", {0: "sorting-0a1b2-1-env-0-5"}),
        ("sorting-0a1b2-3", {}),
    ],
)
def test_the_newest_environment_of_each_slot_and_this_attempt(run_pod: str, found: dict[int, str]) -> None:
    assert environment_pods(NAMES, run_pod) == found
