import pytest
from atroposlib.envs.base import BaseEnvConfig, EvalHandlingEnum
from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ServerBaseline
from pydantic import Field

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.config.run_config import parse_config
from tinker_atropos.environments.runner.loading.environment_config import POLICY_SECONDS, configure, wired_to_run
from tinker_atropos.errors import ConfigError
from tinker_atropos.settings import Settings

SETTINGS = Settings(api_url="http://127.0.0.1:18000", inference_url="http://127.0.0.1:18001")
SHARED = {"total_steps": 3, "group_size": 4, "batch_size": 8, "tokenizer_name": "bundled", "max_token_length": 32}


class Config(BaseEnvConfig):
    colors: tuple[str, ...] = ("red",)
    weights: dict[str, float] = Field(default_factory=dict)
    strictness: float = Field(0.5, ge=0, le=1)


def configured(config_init=None, openai=(), tinker=None, **env):
    run = parse_config({"env": SHARED | env, "openai": list(openai), "tinker": tinker or {}})
    return configure(config_init or (Config(), []), run, wired_to_run(run, SETTINGS), "mine")


def test_config_file_overrides_config_init_and_wiring_overrides_both():
    own = Config(
        group_size=16, worker_timeout=5, colors=("blue",), rollout_server_url="http://elsewhere", use_wandb=False
    )
    config = configured((own, []), strictness=1)[0]
    assert type(config) is Config
    assert (config.group_size, config.worker_timeout, config.strictness) == (4, 5, 1.0)
    assert config.colors == ("blue",)
    assert config.max_batches_offpolicy == own.max_batches_offpolicy  # not set by the file: the environment's own
    assert config.rollout_server_url == "http://127.0.0.1:18000"
    assert config.tokenizer_name == str(bundled_model_folder())
    assert config.use_wandb
    assert config.wandb_name == "mine"


class Ordered(BaseEnvConfig):
    item_seed: int | None = None


SEEDS = {
    "the run's": (None, {}, 7),
    "the file's": (None, {"item_seed": 3}, 3),
    "config_init's": (5, {}, 5),
    "the run's, because the file says null": (5, {"item_seed": None}, 7),
}


@pytest.mark.parametrize(("own", "given", "expected"), SEEDS.values(), ids=SEEDS)
def test_the_order_of_items_is_of_the_runs_seed_unless_it_has_its_own(own, given, expected):
    assert configured((Ordered(item_seed=own), []), tinker={"seed": 7}, **given)[0].item_seed == expected


INTERVALS = {
    "of the file": (7, {"steps_per_eval": 20}, 20),
    "of the file, which turns it off": (7, {"steps_per_eval": 0}, 0),
    "of the file, although config_init turns it off": (-1, {"steps_per_eval": 20}, 20),
    "the trainer's, for a file that is silent": (7, {}, parse_config({"env": SHARED}).env.steps_per_eval),
    "none, because config_init turns it off": (-1, {}, -1),
}


@pytest.mark.parametrize(("own", "given", "expected"), INTERVALS.values(), ids=INTERVALS)
def test_evaluations_are_at_steps_whose_weights_the_trainer_saves(own, given, expected):
    assert configured((Config(steps_per_eval=own), []), **given)[0].steps_per_eval == expected


SERVERS = {
    "none": [],
    "one": [APIServerConfig(model_name="m", base_url="http://a/v1", timeout=7)],
    "two": [APIServerConfig(base_url="http://a/v1", timeout=7), APIServerConfig(base_url="http://b/v1")],
    "not in a list": APIServerConfig(timeout=7),
    "the baseline": ServerBaseline(timeout=7),
    "of another type": [APIServerConfig(server_type="openai", api_key="sk-secret", timeout=7)],
}


@pytest.mark.parametrize("own", SERVERS.values(), ids=SERVERS)
def test_the_policy_has_exactly_one_server(own):
    (server,) = configured((Config(), own), openai=[{"model_name": "bundled", "num_requests_for_eval": 5}])[1]
    assert server.base_url == "http://127.0.0.1:18001/v1"
    assert (server.server_type, server.api_key, server.health_check) == ("sglang", "x", True)
    assert server.model_name == "bundled"
    assert server.tokenizer_name == str(bundled_model_folder())
    assert server.num_requests_for_eval == 5
    assert server.timeout == (7 if own else POLICY_SECONDS)


JUDGE = APIServerConfig(model_name="judge", base_url="https://judge/v1", api_key="sk-judge", server_type="openai")
TEACHER = APIServerConfig(model_name="teacher", server_type="vllm")
POLICY = APIServerConfig(model_name="m")
AS_JUDGE = ("judge", "https://judge/v1", "sk-judge", "openai")
OTHERS = {
    "as the author has it": ([POLICY, JUDGE], [{}], [AS_JUDGE]),
    "with the file's values": ([POLICY, JUDGE], [{}, {"model_name": "bigger"}], [("bigger", *AS_JUDGE[1:])]),
    "several": ([POLICY, JUDGE, TEACHER], [], [AS_JUDGE, ("teacher", "", "", "vllm")]),
    "without replicas of the policy": ([POLICY, POLICY, JUDGE], [], [AS_JUDGE]),
    "of the file alone": (
        [POLICY],
        [{}, {"model_name": "j", "base_url": "http://j/v1"}],
        [("j", "http://j/v1", "", None)],
    ),
}


@pytest.mark.parametrize(("own", "given", "expected"), OTHERS.values(), ids=OTHERS)
def test_servers_of_other_models_are_passed_through(own, given, expected):
    policy, *others = configured((Config(), own), openai=given)[1]
    assert policy.base_url == "http://127.0.0.1:18001/v1"
    default = APIServerConfig().server_type
    assert [(each.model_name, each.base_url, each.api_key, each.server_type) for each in others] == [
        (model, url, key, kind or default) for model, url, key, kind in expected
    ]


WRONG_OTHERS = {
    "unknown field": ({"modelname": "x"}, r"openai\.1\.modelname is not a field .*did you mean 'model_name'"),
    "a key": (
        {"api_key": "sk-secret"},
        r"^openai\.1\.api_key: a config file must not hold a key; [^k]*let config_init",
    ),
}


@pytest.mark.parametrize(("given", "message"), WRONG_OTHERS.values(), ids=WRONG_OTHERS)
def test_a_wrong_value_for_another_server_is_refused(given, message):
    with pytest.raises(ConfigError, match=message) as refused:
        configured((Config(), [POLICY, JUDGE]), openai=[{}, given])
    assert "sk-secret" not in str(refused.value)


ACCEPTED = {
    "an enum by its value": ({"eval_handling": "NONE"}, "eval_handling", EvalHandlingEnum.NONE),
    "a list for a tuple": ({"colors": ["red", "blue"]}, "colors", ("red", "blue")),
    "an integer for a float": ({"weights": {"a": 1}}, "weights", {"a": 1.0}),
    "nothing for an optional": ({"reasoning_effort": None}, "reasoning_effort", None),
}


@pytest.mark.parametrize(("given", "name", "value"), ACCEPTED.values(), ids=ACCEPTED)
def test_value_is_accepted(given, name, value):
    assert getattr(configured(**given)[0], name) == value


REFUSED = {
    "unknown": ({"grup_size": 4}, r"env\.grup_size is not a field of this environment; did you mean 'group_size'\?"),
    "text for a number": ({"worker_timeout": "60"}, r"env\.worker_timeout is '60': input should be a valid number"),
    "a number for text": ({"wandb_name": 3}, r"env\.wandb_name is 3: input should be a valid string"),
    "no such choice": ({"eval_handling": "LATER"}, r"env\.eval_handling is 'LATER': input should be 'STOP_TRAIN'"),
    "out of bounds": ({"strictness": 2.0}, r"env\.strictness is 2\.0: input should be less than or equal to 1"),
    "a wrong element": ({"colors": ["red", 1]}, r"env\.colors is \['red', 1\]: input should be a valid string"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_value_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        configured(**given)


def test_unknown_field_of_the_server_is_refused():
    with pytest.raises(ConfigError, match=r"openai\.0\.modelname is not a field .*did you mean 'model_name'"):
        configured(openai=[{"modelname": "x"}])
