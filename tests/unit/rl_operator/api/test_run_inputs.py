"""What `spec.environment` means, what a waiting run reports, and which settings are in force."""

from typing import Any

import pytest
from tests.unit.rl_operator.samples import (
    CATALOG,
    KINDS,
    TINY,
    catalog_of,
    inputs_of_kind,
    make_run,
    make_runtime,
    tasksets,
)

from rl_operator.api.catalog import AbsentFamily, needs_image
from rl_operator.api.environment import Environment, EnvironmentSpec, EnvironmentStatus, runs_apart
from rl_operator.api.run_inputs import choose_environment, effective_sections
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
    runtime = make_runtime(image="theirs:1")
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
    chosen = choose_environment("own/maze", TINY, None, environment)
    assert chosen.known is None
    assert chosen.pending is not None
    reason, sentence = chosen.pending
    assert reason == "EnvironmentPending"
    assert sentence.startswith("Waiting for RLEnvironment 'maze': ")


def test_an_own_environment_is_known_only_while_it_is_ready() -> None:
    chosen = choose_environment("own/maze", TINY, None, own(READY))
    assert chosen.known is not None
    assert (chosen.known.name, chosen.known.class_name, chosen.known.file_path) == ("own/maze", "Maze", "maze.py")
    broken = choose_environment("own/maze", TINY, None, own(NOT_READY, STALLED))
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
    chosen = choose_environment(name, TINY, tasksets(), None)
    assert chosen.known is None or chosen.known.name == name
    assert (chosen.known is not None) is known
    assert chosen.absence is None


def test_where_there_is_no_taskset_at_all_it_is_said_how_to_get_them() -> None:
    runtime = make_runtime(image="theirs:1")
    not_installed = CATALOG.with_changes(absent=(AbsentFamily(name="verifiers", hint="install it"),))
    for name in ("verifiers/poker", "verifiers/poker@1.0", "verifiers"):
        assert choose_environment(name, runtime, not_installed, None).absence == "install it"
        assert choose_environment(name, runtime, CATALOG, None).absence == needs_image("lab")
    assert "spec.environmentImage" in needs_image("lab")
    assert choose_environment("sort_digit", runtime, not_installed, None).absence is None


def test_every_kind_of_environment_is_known_by_whose_code_it_runs() -> None:
    """A new library, or a new way to give an environment of one's own, is a row of the table."""
    ways = EnvironmentSpec.model_fields.keys() - {"resources", "secret_environment"}
    assert set(KINDS) == {"bundled", "a file", *(each.name for each in CATALOG.families), *ways}
    own_code = {kind: inputs_of_kind(kind, make_runtime())[1].environment.runs_own_code for kind in KINDS}
    assert own_code == {kind: expected for kind, (_, _, expected) in KINDS.items()}


def test_no_environment_takes_a_command_beside_the_keys() -> None:
    """Whatever a family is called: its fields say that a user's program runs."""
    takes = {each.name for each in CATALOG.environments if "command" in CATALOG.completed(each).fields_by_name}
    assert takes == {name for name in CATALOG.names if runs_apart(name)} != set()


def test_code_of_ones_own_that_is_not_read_yet_is_no_less_ones_own() -> None:
    assert choose_environment("own/maze", TINY, None, own(observed=-1)).runs_own_code


def test_later_layers_win() -> None:
    toy = catalog_of({"name": "color", "type": "str", "default": "own"}).named("toy")
    runtime = make_runtime(
        defaults={"env": {"total_steps": 20, "group_size": 5, "batch_size": 5, "color": "default"}},
        locked={"env": {"batch_size": 10}},
    )
    run = make_run(environment="toy", config={"group_size": 2, "batch_size": 3})
    assert effective_sections(run, runtime, toy).env == {
        "batch_size": 10,  # locked
        "color": "default",
        "group_size": 2,  # the run's
        "max_token_length": 64,  # the environment's own
        "tokenizer_name": "bundled",
        "total_steps": 20,  # the runtime's default
    }


def test_the_environments_own_values_are_not_written_out() -> None:
    toy = catalog_of({"name": "color", "type": "str", "default": "own"}).named("toy")
    assert "color" not in effective_sections(make_run(), make_runtime(), toy).env


def test_runtime_values_for_fields_of_other_environments_are_left_out() -> None:
    toy = catalog_of().named("toy")
    runtime = make_runtime(defaults={"env": {"max_agent_turns": 30}}, locked={"env": {"terminal_timeout": 120}})
    assert effective_sections(make_run(), runtime, toy).env.keys() == {
        "batch_size", "group_size", "max_token_length", "tokenizer_name", "total_steps",
    }  # fmt: skip


def test_wired_values_are_ignored() -> None:
    runtime = make_runtime(
        locked={
            "env": {"rollout_server_url": "http://x"},
            "openai": {"base_url": "http://x", "api_key": "x", "weight": 1},
            "trainer": {"checkpoint_dir": "./temp/"},
        }
    )
    sections = effective_sections(make_run(), runtime, CATALOG.named("sort_digits"))
    assert "rollout_server_url" not in sections.env
    assert sections.openai == {"weight": 1}
    assert sections.trainer == {}


def test_keys_are_sorted() -> None:
    sections = effective_sections(make_run(config={"a": 1, "A": 2}), TINY, CATALOG.named("sort_digits"))
    assert list(sections.env) == sorted(sections.env)


def test_the_order_of_keys_does_not_matter_at_any_depth() -> None:
    toy = catalog_of({"name": "mix", "type": "dict", "default": {}}).named("toy")
    one, other = ({"a": [{"x": 1, "y": 2}], "b": 3}, {"b": 3, "a": [{"y": 2, "x": 1}]})
    texts = {
        str(effective_sections(make_run(environment="toy", config={"mix": value}), make_runtime(), toy))
        for value in (one, other)
    }
    assert len(texts) == 1
