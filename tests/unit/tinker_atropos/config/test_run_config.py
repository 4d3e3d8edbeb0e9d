"""The config file: what is accepted, and how mistakes are refused."""

import hashlib

import pytest

from rl_contract.bundled import BUNDLED
from tinker_atropos.config.run_config import Yaml12Loader, load_config, nearest, parse_config
from tinker_atropos.errors import ConfigError

ENV = {"total_steps": 40, "group_size": 8, "batch_size": 32, "tokenizer_name": BUNDLED, "max_token_length": 64}


def test_a_small_config_and_its_defaults() -> None:
    config = parse_config({"env": ENV})
    assert (config.env.max_batches_offpolicy, config.tinker.lora_rank, config.tinker.loss) == (
        3,
        32,
        "importance_sampling",
    )
    assert config.base_model == BUNDLED


def test_fields_of_the_environment_pass_through() -> None:
    config = parse_config({"env": ENV | {"max_operand": 9}, "slurm": False, "testing": False})
    assert config.env.model_extra == {"max_operand": 9}


def test_the_model_is_the_one_of_the_inference_server() -> None:
    assert parse_config({"env": ENV, "openai": [{"model_name": "a/b"}]}).base_model == "a/b"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "env is missing"),
        ({"env": {key: ENV[key] for key in ENV if key != "total_steps"}}, "env.total_steps is missing"),
        ({"env": ENV | {"total_steps": 0}}, "env.total_steps is 0: input should be greater than or equal to 1"),
        ({"env": ENV | {"total_steps": "40"}}, "env.total_steps is '40': input should be a valid integer"),
        (
            {"env": ENV | {"batch_size": 12}},
            "env.batch_size is 12: a batch holds whole groups, and 12 rollouts cannot be divided into groups of 8",
        ),
        ({"env": ENV | {"max_batches_offpolicy": 0}}, "env.max_batches_offpolicy is 0: input should be greater than"),
        (
            {"env": ENV, "tinker": {"lora_ranks": 8}},
            "tinker.lora_ranks is not a known field; did you mean 'lora_rank'?",
        ),
        ({"env": ENV, "tinker": {"zzz": 8}}, r"tinker.zzz is not a known field \(known: lora_rank, "),
        ({"env": ENV, "tinkr": {}}, "tinkr is not a known field; did you mean 'tinker'?"),
        ({"env": ENV, "tinker": {"loss": "dpo"}}, "tinker.loss is 'dpo': input should be 'importance_sampling'"),
        (
            {"env": ENV, "tinker": {"learning_rate": "fast"}},
            "tinker.learning_rate is 'fast': input should be a valid number or 'auto'",
        ),
        ({"env": ENV, "tinker": {"learning_rate": 0}}, "tinker.learning_rate is 0: input should be greater than 0 or "),
        (
            {"env": ENV, "tinker": {"num_substeps": 5}},
            (
                "tinker.num_substeps is 5: a batch holds 4 groups (batch_size / group_size), and each optimizer step "
                "needs one: lower it, or raise env.batch_size"
            ),
        ),
        (
            {"env": ENV, "tinker": {"train_attn": False, "train_mlp": False, "train_unembed": False}},
            "tinker.train_attn is False: train_attn, train_mlp, train_unembed are all false",
        ),
        ({"env": ENV, "openai": {}}, "openai is {}: input should be a valid list"),
        ({"env": None}, "env is None: input should be a valid dictionary"),
    ],
)
def test_mistakes_are_named(document, message) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(document)
    assert message.replace("\\", "") in str(caught.value)


def test_a_file(tmp_path) -> None:
    path = tmp_path / "config.yaml"
    lines = [f"  {name}: {value}" for name, value in ENV.items()]
    path.write_text("\n".join(["env:", *lines, "tinker:", "  learning_rate: 4e-5"]))
    assert load_config(path).tinker.learning_rate == 4e-5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not YAML"),
        ("", "must hold a mapping with the sections env, openai"),
        ("- a", "must hold a mapping"),
    ],
)
def test_a_file_without_a_config(tmp_path, content, message) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


def test_only_the_file_that_the_run_was_started_with(tmp_path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("\n".join(["env:", *(f"  {name}: {value}" for name, value in ENV.items())]))
    own, other = hashlib.sha256(path.read_bytes()).hexdigest(), "0" * 64
    assert load_config(path, own) == load_config(path)
    with pytest.raises(
        ConfigError, match=f"^TemplateChanged: the config file {path} .* is {own}, not {other}; someone"
    ):
        load_config(path, other)


def test_a_missing_file(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the config file .*: No such file"):
        load_config(tmp_path / "absent.yaml")


def test_a_file_that_is_not_text(tmp_path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"env: \xff\xfe")
    with pytest.raises(ConfigError, match="is not YAML"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4e-5", 4e-5),
        ("-1E3", -1000.0),
        (".5e1", 5.0),
        ("1.e2", 100.0),
        ("4", 4),
        ("0.5", 0.5),
        ("e5", "e5"),
        ("'4e-5'", "4e-5"),
    ],
)
def test_numbers_of_yaml_1_2(text, value) -> None:
    import yaml

    assert yaml.load(text, Loader=Yaml12Loader) == value
    assert type(yaml.load(text, Loader=Yaml12Loader)) is type(value)


def test_no_hint_without_a_similar_name() -> None:
    assert nearest("zzz", ["lora_rank"]) == ""
