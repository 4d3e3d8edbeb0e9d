from typing import Any

import pytest
from tests.unit.rl_operator.samples import DEFAULT, inputs_of, make_run, make_runtime, own_environment, own_inputs
from tests.unit.rl_operator.targets.fakes import MemoryTarget

from rl_operator.api.run_inputs import RunInputs, choose_environment
from rl_operator.tools.calls.rl_start_training import missing_for, missing_in

CLUSTER = {"runs_files": False}


def keys_of(keys: dict[str, bool | None], **target: Any) -> MemoryTarget:
    found = MemoryTarget(**target)
    found.keys = keys
    return found


def test_nothing_is_missing_when_the_keys_exist() -> None:
    assert missing_in(keys_of({"TINKER_API_KEY": True, "WANDB_API_KEY": True}), "team-a", DEFAULT) == ()


def test_a_secret_is_named_with_the_command_to_create_it() -> None:
    tinker, wandb = missing_in(keys_of({}, **CLUSTER), "team-a", DEFAULT)
    assert (tinker.what, tinker.name, tinker.needed) == ("Secret", "tinker", True)
    assert tinker.how == "kubectl -n team-a create secret generic tinker --from-literal=TINKER_API_KEY=…"
    assert (wandb.name, wandb.needed) == ("wandb", False)


def test_an_unreadable_secret_is_not_reported_missing() -> None:
    [unseen] = missing_in(keys_of({"TINKER_API_KEY": None, "WANDB_API_KEY": True}, **CLUSTER), "team-a", DEFAULT)
    assert not unseen.needed
    assert "it may be there" in unseen.why


def test_on_this_machine_it_is_a_variable() -> None:
    [tinker] = missing_in(keys_of({"WANDB_API_KEY": True}), "default", DEFAULT)
    assert (tinker.what, tinker.name, tinker.needed) == ("variable", "TINKER_API_KEY", True)
    assert tinker.how == "export TINKER_API_KEY=… where this is called from"


JUDGE = {"name": "judge", "key": "JUDGE_KEY"}


@pytest.mark.parametrize(
    ("allowed", "asked", "names"),
    [
        pytest.param([JUDGE], [JUDGE], ["judge"], id="asked for and allowed"),
        pytest.param([], [JUDGE], [], id="asked for only"),
        pytest.param([JUDGE], [], [], id="allowed only"),
    ],
)
def test_keys_of_own_environments(allowed: list[dict[str, str]], asked: list[dict[str, str]], names: list[str]) -> None:
    runtime = make_runtime(secretEnvironment=allowed)
    inputs = own_inputs(make_run(environment="own/digits"), runtime, own_environment(secretEnvironment=asked))
    assert [each.name for each in missing_for(keys_of({}, **CLUSTER), "team-a", inputs)] == names


def test_bundled_environments_get_every_key_that_the_runtime_lists() -> None:
    inputs = inputs_of(make_run(), make_runtime(secretEnvironment=[JUDGE]))
    assert [each.name for each in missing_for(keys_of({}, **CLUSTER), "team-a", inputs)] == ["judge"]


def test_unread_environments_are_waited_for() -> None:
    runtime = make_runtime()
    chosen = choose_environment("sort_digits", runtime, None, None)
    [pending] = missing_for(keys_of({}, **CLUSTER), "team-a", RunInputs(runtime, chosen))
    assert (pending.what, pending.name, pending.needed) == ("environment", "CatalogPending", False)
    assert pending.how.startswith("Wait")
