"""What `spec.environment` means, and what a waiting run reports."""

from typing import Any

import pytest
from tests.unit.rl_operator import samples

from rl_operator.api.catalog import AbsentFamily, needs_image
from rl_operator.api.environment import Environment, EnvironmentStatus
from rl_operator.api.run_inputs import choose_environment
from rl_operator.api.runtime import RuntimeStatus
from rl_operator.api.status_fields import Condition
from rl_operator.documents.parse import parse_environment

READY = {"type": "Ready", "status": "True", "reason": "EnvironmentFound"}
STALLED = {"type": "Stalled", "status": "True", "reason": "SyntaxError", "message": "env.py, line 3: no"}
NOT_READY = {"type": "Ready", "status": "False", "reason": "SyntaxError"}
READING = {"type": "Reconciling", "status": "True", "reason": "DiscoveryFailed", "message": "Image i cannot be read."}


def conditions(*each: dict[str, str]) -> tuple[Condition, ...]:
    return tuple(Condition(**one, last_transition_time="2026-01-01T00:00:00Z") for one in each)


def own(*each: dict[str, str], generation: int = 1, observed: int = 1) -> Environment:
    document: dict[str, Any] = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLEnvironment",
        "metadata": {"name": "maze", "namespace": "team-a", "generation": generation},
        "spec": {"source": {"configMap": {"name": "maze"}}},
    }
    status = EnvironmentStatus(
        observed_generation=observed, conditions=conditions(*each), class_name="Maze", entry="maze.py"
    )
    return parse_environment(document).with_changes(status=status)


def test_without_a_catalog_a_run_waits_and_shows_the_runtimes_image_status() -> None:
    runtime = samples.make_runtime(image="theirs:1")
    assert choose_environment("maze", runtime, None, None).pending == (
        "CatalogPending",
        "Waiting for the catalog of runtime 'lab': it is going to be read.",
    )
    runtime = runtime.with_changes(status=RuntimeStatus(conditions=conditions(READING)))
    assert choose_environment("maze", runtime, None, None).pending == (
        "CatalogPending",
        "Waiting for the catalog of runtime 'lab': Image i cannot be read.",
    )


WAITING = {
    "nobody looked at it": own(observed=-1),
    "its spec is newer": own(READY, generation=2),
    "its image is being read": own(READING),
}


@pytest.mark.parametrize("environment", WAITING.values(), ids=WAITING)
def test_an_unchecked_own_environment_is_waited_for(environment: Environment) -> None:
    chosen = choose_environment("own/maze", samples.TINY, None, environment)
    assert chosen.known is None
    assert chosen.pending is not None
    reason, sentence = chosen.pending
    assert reason == "EnvironmentPending"
    assert sentence.startswith("Waiting for RLEnvironment 'maze': ")


def test_an_own_environment_is_known_only_while_it_is_ready() -> None:
    chosen = choose_environment("own/maze", samples.TINY, None, own(READY))
    assert chosen.known is not None
    assert (chosen.known.name, chosen.known.class_name, chosen.known.file_path) == ("own/maze", "Maze", "maze.py")
    broken = choose_environment("own/maze", samples.TINY, None, own(NOT_READY, STALLED))
    assert (broken.known, broken.pending) == (None, None)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("verifiers/poker", True),
        ("verifiers/poker@1.2.0", True),
        ("verifiers/Some-one/POKER@1.2.0", True),
        ("verifiers/word-game", True),
        ("word-game", False),
        ("verifiers/poker@", False),
        ("verifiers/poker@1@2", False),
        ("verifiers/chess@1.2.0", False),
        ("toy@1.2.0", False),
    ],
)
def test_a_taskset_is_known_in_any_version(name: str, known: bool) -> None:
    """Whether it is installed in that version is checked by the environment at its start."""
    chosen = choose_environment(name, samples.TINY, samples.tasksets(), None)
    assert chosen.known is None or chosen.known.name == name
    assert (chosen.known is not None) is known
    assert chosen.absence is None


def test_where_there_is_no_taskset_at_all_it_is_said_how_to_get_them() -> None:
    runtime = samples.make_runtime(image="theirs:1")
    not_installed = samples.CATALOG.with_changes(absent=(AbsentFamily(name="verifiers", hint="install it"),))
    for name in ("verifiers/poker", "verifiers/poker@1.0", "verifiers"):
        assert choose_environment(name, runtime, not_installed, None).absence == "install it"
        assert choose_environment(name, runtime, samples.CATALOG, None).absence == needs_image("lab")
    assert "spec.environmentImage" in needs_image("lab")
    assert choose_environment("sort_digit", runtime, not_installed, None).absence is None
