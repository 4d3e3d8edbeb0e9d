import json

import pytest

from rl_contract.prices import TokenPrices
from rl_contract.status_metrics import EvaluatedFigure
from rl_contract.trainer_messages import BestCheckpoint
from tinker_atropos.errors import ConfigError
from tinker_atropos.settings import Address, Parent, SandboxService, Settings, Spent, load_settings


@pytest.mark.parametrize(("container", "port"), [("api", 8003), ("trainer", 8002), ("environment", 8004)])
def test_defaults(container, port) -> None:
    assert load_settings(container, {}) == Settings(ops_port=port)


def test_every_variable() -> None:
    env_vars = {
        "RL_API_URL": "http://10.0.0.1:9000/",
        "RL_INFERENCE_URL": "http://localhost:9001",
        "RL_OPS_HOST": "127.0.0.1",
        "RL_OPS_PORT": "9003",
        "RL_RUN_NAME": "sorting",
        "RL_RUN_NAMESPACE": "team-a",
        "RL_RUN_UID": "1234",
        "RL_ATTEMPT": "2",
        "RL_START_FROM": "tinker://a/weights/b",
        "RL_START_FROM_OPTIMIZER": "1",
        "RL_START_FROM_DATA": "1",
        "RL_PARENT_RUN": "sorting-1",
        "RL_PARENT_STEP": "12",
        "RL_PARENT_WANDB_URL": "https://wandb.ai/a/b/runs/c",
        "RL_REMOTE_ENVIRONMENTS": "1",
        "RL_ENVIRONMENT_GRACE": "30",
        "RL_ENVIRONMENT_INDEX": "3",
        "RL_SANDBOX_HOST": "sorting-sandboxes",
        "RL_SANDBOX_PORT": "8090",
        "RL_SANDBOX_SHARE": "2",
        "RL_RESULT_FILE": "/dev/termination-log",
        "RL_GRACE_SECONDS": "300",
        "RL_WANDB_RUN_ID": "w1",
    }
    settings = load_settings("api", env_vars)
    assert settings == Settings(
        api_url="http://10.0.0.1:9000",
        inference_url="http://localhost:9001",
        ops_host="127.0.0.1",
        ops_port=9003,
        run_name="sorting",
        run_namespace="team-a",
        run_uid="1234",
        attempt=2,
        start_from="tinker://a/weights/b",
        start_from_optimizer=True,
        start_from_data=True,
        parent=Parent("sorting-1", 12, "https://wandb.ai/a/b/runs/c"),
        remote_environments=True,
        environment_grace=30,
        environment_index=3,
        sandboxes=SandboxService("sorting-sandboxes", 8090, 2),
        result_file="/dev/termination-log",
        grace_seconds=300,
        wandb_run_id="w1",
    )
    assert settings.api_address == Address("10.0.0.1", 9000)
    assert settings.inference_address == Address("localhost", 9001)


@pytest.mark.parametrize(
    "variable",
    [
        *("RL_START_FROM", "RL_START_FROM_OPTIMIZER", "RL_PARENT_RUN", "RL_PARENT_STEP", "RL_PARENT_WANDB_URL"),
        *("RL_RESULT_FILE", "RL_WANDB_RUN_ID", "RL_ATTEMPT"),
        *("RL_REMOTE_ENVIRONMENTS", "RL_ENVIRONMENT_GRACE", "RL_ENVIRONMENT_INDEX", "RL_SANDBOX_HOST"),
    ],
)
def test_an_empty_variable_is_an_absent_one(variable) -> None:
    assert load_settings("trainer", {variable: ""}) == load_settings("trainer", {})


@pytest.mark.parametrize("variable", ["RL_OPS_PORT", "RL_ATTEMPT", "RL_PARENT_STEP", "RL_ENVIRONMENT_INDEX"])
@pytest.mark.parametrize("value", ["one", "-1", "1.5", "²"])
def test_a_value_that_is_not_a_number(variable, value) -> None:
    with pytest.raises(ConfigError, match=f"{variable} is '{value}'; it must be an integer"):
        load_settings("api", {variable: value})


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "https://a:1", "http://:8000", "http://host", "http://host:port", "http://host:99999", ""]
)
def test_a_value_that_is_not_an_address(url) -> None:
    with pytest.raises(ConfigError, match=r"RL_API_URL is .* it must look like http://127\.0\.0\.1:8000"):
        Address.of_url("RL_API_URL", url)


@pytest.mark.parametrize("value", ["true", "yes", "2"])
def test_a_switch_that_is_neither_on_nor_off(value) -> None:
    with pytest.raises(ConfigError, match=f"RL_REMOTE_ENVIRONMENTS is '{value}'; it must be 1, or 0"):
        load_settings("api", {"RL_REMOTE_ENVIRONMENTS": value})


def test_the_best_weights_of_earlier_attempts() -> None:
    best = BestCheckpoint(
        step=50,
        held_out=EvaluatedFigure(value=0.9123, low=0.89),
        state_path="tinker://m/weights/50",
        sampler_path="tinker://m/sampler_weights/50",
    )
    assert load_settings("trainer", {"RL_BEST_CHECKPOINT": json.dumps(best.to_wire())}).best == best


def test_best_weights_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"RL_BEST_CHECKPOINT is '\{\}'; it must be status.best as JSON"):
        load_settings("trainer", {"RL_BEST_CHECKPOINT": "{}"})


@pytest.mark.parametrize(("port", "share"), [("", "1"), ("0", "1"), ("65536", "1"), ("8090", ""), ("8090", "0")])
def test_sandboxes_without_a_port_or_a_share(port, share) -> None:
    env_vars = {"RL_SANDBOX_HOST": "host", "RL_SANDBOX_PORT": port, "RL_SANDBOX_SHARE": share}
    with pytest.raises(ConfigError, match="with RL_SANDBOX_HOST they must be a port and a number of sandboxes from 1"):
        load_settings("environment", env_vars)


def test_prices_and_what_is_spent() -> None:
    prices = '{"prefill": 0.13, "sample": 0.4, "train": 0.4, "currency": "EUR"}'
    env_vars = {"RL_PRICES": prices, "RL_BUDGET": "12.5", "RL_SPENT": "3.25", "RL_SPENT_STEPS": "40"}
    settings = load_settings("trainer", env_vars)
    assert settings.prices == TokenPrices(0.13, 0.4, 0.4, "EUR")
    assert (settings.budget, settings.spent) == (12.5, Spent(3.25, 40))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RL_PRICES", '{"prefill": 1}'),
        ("RL_PRICES", '{"prefill": -1, "sample": 1, "train": 1, "currency": "USD"}'),
        ("RL_PRICES", "cheap"),
        ("RL_BUDGET", "inf"),
        ("RL_BUDGET", "much"),
        ("RL_SPENT", "-1"),
    ],
)
def test_wrong_money_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is"):
        load_settings("trainer", {name: value})
