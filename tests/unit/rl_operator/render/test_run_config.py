import pytest
import yaml
from tests.unit.rl_operator.samples import catalog_of, inputs_of, make_run, make_runtime

from rl_contract.shared_env import SharedEnvSection
from rl_contract.trainer_settings import TrainerSettings
from rl_operator.documents.shipped import bundled_runtimes
from rl_operator.render import render_run
from rl_operator.render.config_maps import render_config


def test_the_runs_wandb_settings_win_over_the_runtimes() -> None:
    runtime = make_runtime(wandb={"project": "platform"})
    run = make_run(wandb={"project": "mine", "group": "g", "name": "n"})
    tinker = render_config(run, inputs_of(run, runtime))["tinker"]
    assert tinker == {"wandb_project": "mine", "wandb_group": "g", "wandb_run_name": "n"}
    tinker = render_config(make_run(), inputs_of(make_run(), runtime))["tinker"]
    assert tinker == {"wandb_project": "platform", "wandb_run_name": "sorting"}


def test_shared_fields_are_present_even_if_unset() -> None:
    env = render_config(make_run(), inputs_of(make_run(), make_runtime()))["env"]
    shared = {"total_steps", "group_size", "batch_size", "max_token_length", "tokenizer_name"}
    assert env.keys() == shared | {"steps_per_eval"}  # which the trainer must agree on, too


@pytest.mark.parametrize(("own", "rendered"), [(40, 40), (0, 0), (-1, 0), (None, None), ("often", None), (True, None)])
def test_the_environments_own_interval_is_rendered_as_the_trainer_reads_it(own: object, rendered: int | None) -> None:
    """None: only running `config_init` would tell."""
    toy = catalog_of({"name": "steps_per_eval", "type": "int", "default": own})
    run = make_run(environment="toy")
    env = render_config(run, inputs_of(run, make_runtime(), toy))["env"]
    assert env.get("steps_per_eval") == rendered
    SharedEnvSection.model_validate(env)


def test_no_addresses() -> None:
    text = render_run(make_run(), inputs_of(make_run())).config_map["data"]["config.yaml"]
    assert "http" not in text
    assert "800" not in text


@pytest.mark.parametrize("name", ["default", "tiny"])
def test_the_trainer_reads_the_rendered_config(name: str) -> None:
    """It reads the file strictly, with these models."""
    run = make_run(runtime=name, wandb={"project": "4e-5", "name": "yes"})
    rendered = render_run(run, inputs_of(run, bundled_runtimes()[name]))
    config = yaml.safe_load(rendered.config_map["data"]["config.yaml"])
    env, tinker = SharedEnvSection.model_validate(config["env"]), TrainerSettings.model_validate(config["tinker"])
    assert env.total_steps == rendered.config["env"]["total_steps"]
    assert tinker.learning_rate == rendered.config["tinker"]["learning_rate"]
    assert (tinker.wandb_project, tinker.wandb_run_name) == ("4e-5", "yes")
