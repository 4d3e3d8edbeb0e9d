from dataclasses import replace
from typing import Any

import pytest
from tests.unit.rl_operator.render.pods import values_of
from tests.unit.rl_operator.samples import KINDS, inputs_of, inputs_of_kind, make_run, make_runtime, own_inputs

from rl_contract.prices import TokenPrices
from rl_operator.api.run_inputs import ParentRun
from rl_operator.api.status_fields import RunStatus, StartedFrom
from rl_operator.render.container_env_vars import (
    api_env_vars,
    cost_env_vars,
    environment_env_vars,
    trainer_env_vars,
)

RUNTIME = make_runtime(
    backend={"url": "http://tinker:8005", "keySecret": {"name": "tinker", "key": "k"}},
    wandb={
        "project": "platform",
        "entity": "org",
        "baseURL": "http://wandb",
        "keySecret": {"name": "wandb", "key": "w"},
    },
    secretEnvironment=[{"name": "judge", "key": "JUDGE_KEY"}],
)


def started(start_from: dict[str, Any], parent: ParentRun | None = None) -> dict[str, Any]:
    """The trainer's variables that say what it starts from."""
    run = make_run(startFrom=start_from)
    given = values_of(trainer_env_vars(run, replace(inputs_of(run, RUNTIME), parent=parent)))
    return {name: value for name, value in given.items() if name.startswith(("RL_START_FROM", "RL_PARENT_"))}


def test_a_state_may_come_with_its_optimizer_and_its_data() -> None:
    begun, state = {"RL_START_FROM": "tinker://a/weights/b"}, {"checkpoint": "tinker://a/weights/b"}
    assert started(state) == started({**state, "data": "restart"}) == begun
    assert started({**state, "withOptimizer": True}) == {**begun, "RL_START_FROM_OPTIMIZER": "1"}
    assert started({**state, "data": "continue"}) == {**begun, "RL_START_FROM_DATA": "1"}


def test_a_parent_is_named_next_to_its_state() -> None:
    state = StartedFrom(run="sorting-1", uid="u", step=40, state_path="tinker://m/weights/end")
    begun = {"RL_START_FROM": "tinker://m/weights/end", "RL_PARENT_RUN": "sorting-1", "RL_PARENT_STEP": "40"}
    assert started({"run": "sorting-1"}, ParentRun("sorting-1", exists=True, state=state)) == begun
    on_wandb = state.with_changes(wandb_url="https://wandb.ai/x/y/runs/u")
    assert started(
        {"run": "sorting-1", "withOptimizer": True}, ParentRun("sorting-1", exists=True, state=on_wandb)
    ) == {
        **begun,
        "RL_START_FROM_OPTIMIZER": "1",
        "RL_PARENT_WANDB_URL": "https://wandb.ai/x/y/runs/u",
    }


def test_the_environment_gets_only_the_listed_keys() -> None:
    run = make_run()
    given = values_of(environment_env_vars(run, inputs_of(run, RUNTIME), "sandboxes.team-a.svc"))
    assert given["JUDGE_KEY"] == {"secretKeyRef": {"name": "judge", "key": "JUDGE_KEY"}}
    assert not given.keys() & {"TINKER_API_KEY", "TINKER_BASE_URL", "WANDB_API_KEY"}


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_bundled_gets_a_listed_key_unasked(kind: str) -> None:
    _, own, own_code = KINDS[kind]
    given = values_of(environment_env_vars(*inputs_of_kind(kind, RUNTIME), "", "h"))
    keys = {name for name, value in given.items() if "secretKeyRef" in value}
    assert keys == ({"JUDGE_KEY"} if own is None and not own_code else set())


TAUGHT = make_runtime(teacher={"url": "http://teacher:8100", "keySecret": {"name": "teacher", "key": "k"}})
TEACHER = {"TEACHER_URL": "http://teacher:8100", "TEACHER_API_KEY": {"secretKeyRef": {"name": "teacher", "key": "k"}}}


@pytest.mark.parametrize("top_k", [0, 1, 4])
def test_a_teachers_key_goes_with_its_address_to_who_asks_the_teacher(top_k) -> None:
    run = make_run(config={"teacher_top_k": top_k})
    own = run.with_changes(spec=run.spec.with_changes(environment="own/digits"))
    for given in (
        environment_env_vars(run, inputs_of(run, TAUGHT), ""),
        environment_env_vars(run, inputs_of(run, TAUGHT), "", "h"),
        environment_env_vars(own, own_inputs(own, TAUGHT), "", "h"),
    ):
        found = {name: value for name, value in values_of(given).items() if name.startswith("TEACHER_")}
        assert found == (TEACHER if top_k else {})
    for others in (api_env_vars(run), trainer_env_vars(run, inputs_of(run, TAUGHT))):
        assert not values_of(others).keys() & TEACHER.keys()


def test_the_api_gets_no_keys() -> None:
    assert values_of(api_env_vars(make_run())).keys() == {
        "HOME", "RL_API_URL", "RL_OPS_PORT", "RL_RESULT_FILE", "RL_RUN_NAME", "RL_RUN_NAMESPACE", "RL_RUN_UID",
    }  # fmt: skip


PRICES = {"currency": "EUR", "prefill": 0.1, "sample": 0.4, "train": 0.4}
TINY_PRICES = {"prefill": 1, "sample": 2, "train": 3}


def prices_of(**prices: Any) -> Any:
    runtime = make_runtime(backend={"prices": prices}, locked={"env": {"tokenizer_name": "bundled"}})
    run = make_run(runtime="lab")
    found = values_of(trainer_env_vars(run, inputs_of(run, runtime))).get("RL_PRICES")
    return found and TokenPrices.from_json(found)


def test_the_trainer_is_told_the_prices_of_its_model() -> None:
    assert prices_of(**PRICES) == TokenPrices(0.1, 0.4, 0.4, "EUR")
    assert prices_of(**PRICES, models={"bundled": TINY_PRICES}) == TokenPrices(1, 2, 3, "EUR")
    assert prices_of(models={"bundled": TINY_PRICES}) == TokenPrices(1, 2, 3, "USD")
    assert prices_of(models={"another": TINY_PRICES}) is None


def test_each_attempt_is_told_the_budget_and_what_is_spent() -> None:
    run = make_run(budget={"amount": 12.5, "currency": "EUR"})
    assert values_of(cost_env_vars(run)) == {"RL_BUDGET": "12.5"}
    progress = {"step": 40, "totalSteps": 100, "percent": 40}
    spent = RunStatus.model_validate({"cost": {"amount": 3.25, "currency": "EUR"}, "progress": progress})
    told = values_of(cost_env_vars(run.with_changes(status=spent)))
    assert told == {"RL_BUDGET": "12.5", "RL_SPENT": "3.25", "RL_SPENT_STEPS": "40"}
    assert cost_env_vars(make_run()) == []
