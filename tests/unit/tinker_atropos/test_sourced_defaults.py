"""Every default that claims a source, held against it: the installed SDK and cookbook where they have the value, else
the number that the named paper or documentation gives. An update that changes one of them fails here.
"""

import ast
import dataclasses
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tinker import AdamParams, SamplingParams, ServiceClient, types

from rl_contract.confidence_intervals import Z_95
from rl_contract.policy_losses import POLICY_LOSSES, ClipThresholds
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import SamplingSettings
from tinker_atropos.trainer.backend.lora_weights import ADAM_BETA1, ADAM_BETA2, ADAM_EPS
from tinker_atropos.trainer.data.datums import loss_config
from tinker_service.model.adamw import AdamSettings
from tinker_service.model.lora import ALPHA, LoraSpec
from tinker_service.model.losses import LOSSES
from tinker_service.model.sampling.sample_jobs import SamplingRequest
from tinker_service.sdk.operations import DEFAULT_LORA, MIN_TTL_SECONDS

COOKBOOK = importlib.util.find_spec("tinker_cookbook")
TUTORIAL = "tinker-cookbook, tutorials/202_loss_functions.py"


def of_sdk(model: Any, name: str) -> Any:
    return model.model_fields[name].default


def of_ours(model: Any, name: str) -> Any:
    return next(field.default for field in dataclasses.fields(model) if field.name == name)


def service_clips(loss: str) -> ClipThresholds:
    config = LOSSES[loss].config
    return ClipThresholds(config["clip_low_threshold"], config["clip_high_threshold"])


def trainer_clips(**given: Any) -> ClipThresholds:
    sent = loss_config(TrainerSettings(**given))
    assert sent is not None
    return ClipThresholds(sent["clip_low_threshold"], sent["clip_high_threshold"])


SDK = [
    *((f"sampling, {name}", lambda name=name: of_ours(SamplingSettings, name), SamplingParams, name)
      for name in ("temperature", "top_p", "top_k", "stop", "seed")),
    *((f"the service's sampling, {name}", lambda name=name: of_ours(SamplingRequest, name), SamplingParams, name)
      for name in ("temperature", "top_p", "top_k", "seed")),
    *((f"the service's LoRA, {name}", lambda name=name: of_ours(LoraSpec, name), types.LoraConfig, name)
      for name in ("seed", "train_attn", "train_mlp", "train_unembed")),
    *((f"the service's Adam, {name}", lambda name=name: of_ours(AdamSettings, name), AdamParams, name)
      for name in ("weight_decay", "grad_clip_norm")),
    *((f"the run's {name}", lambda name=name: TrainerSettings.model_fields[name].default, AdamParams, name)
      for name in ("weight_decay", "grad_clip_norm")),
    *((f"the run's {name}", lambda name=name: TrainerSettings.model_fields[name].default, types.LoraConfig, name)
      for name in ("train_attn", "train_mlp", "train_unembed")),
    ("the trainer's Adam, beta1", lambda: ADAM_BETA1, AdamParams, "beta1"),
    ("the trainer's Adam, beta2", lambda: ADAM_BETA2, AdamParams, "beta2"),
]  # fmt: skip
"""(which default, its value here, the SDK's class, the field)."""


@pytest.mark.parametrize(("ours", "model", "name"), [row[1:] for row in SDK], ids=[row[0] for row in SDK])
def test_a_default_is_the_sdks(ours: Callable[[], Any], model: Any, name: str) -> None:
    assert ours() == of_sdk(model, name)


STATED = [
    ("ppo, in the service", lambda: service_clips("ppo"), ClipThresholds(0.8, 1.2), TUTORIAL),
    ("ppo, in the trainer", lambda: trainer_clips(loss="ppo"), ClipThresholds(0.8, 1.2), TUTORIAL),
    ("cispo, in the service", lambda: service_clips("cispo"), ClipThresholds(0.0, 4.0), TUTORIAL),
    ("cispo, in the trainer", lambda: trainer_clips(loss="cispo"), ClipThresholds(0.0, 4.0), TUTORIAL),
    ("gspo, in the service", lambda: service_clips("gspo"), ClipThresholds(1 - 3e-4, 1 + 4e-4),
     "arXiv:2507.18071, section 5.1"),
    ("gspo, in the trainer", lambda: trainer_clips(loss="gspo"), ClipThresholds(1 - 3e-4, 1 + 4e-4),
     "arXiv:2507.18071, section 5.1"),
    ("dro's beta, in the trainer", lambda: loss_config(TrainerSettings(loss="dro")), {"beta": 0.05},
     "Tinker's documentation of dro, its example"),
    ("dro's beta has no default", lambda: "beta" in LOSSES["dro"].config, False, "Tinker's documentation gives none"),
    ("LoRA's alpha", lambda: ALPHA, 32.0, "Tinker's LoRA primer: alpha is 32 whatever the rank"),
    ("shortest time to live", lambda: MIN_TTL_SECONDS, 3_600, "Tinker's checkpoints live at least an hour"),
    ("normal quantile", lambda: round(Z_95, 2), 1.96, "two-sided 95 %"),
]  # fmt: skip
"""(which default, its value here, the value that the source states, the source)."""


@pytest.mark.parametrize(("ours", "stated", "source"), [row[1:] for row in STATED], ids=[row[0] for row in STATED])
def test_a_default_is_what_its_source_states(ours: Callable[[], Any], stated: Any, source: str) -> None:
    assert ours() == stated, source


def cookbooks_rl_loop() -> ast.Module:
    """Read, and not imported: it needs `datasets`."""
    if COOKBOOK is None or not COOKBOOK.submodule_search_locations:
        pytest.skip("needs tinker-cookbook: make setup installs it")
    file = Path(COOKBOOK.submodule_search_locations[0], "recipes/rl_loop.py")
    return ast.parse(file.read_text(encoding="utf-8"))


def test_the_trainers_adam_is_the_cookbooks() -> None:
    """Its own loops set epsilon, too: the SDK's 1e-12 is for clients that name none."""
    calls = [each for each in ast.walk(cookbooks_rl_loop()) if isinstance(each, ast.Call)]
    (adam,) = [each for each in calls if ast.unparse(each.func) == "types.AdamParams"]
    given = {each.arg: each.value for each in adam.keywords}
    of_cookbook = tuple(ast.literal_eval(given[name]) for name in ("beta1", "beta2", "eps"))
    assert of_cookbook == (ADAM_BETA1, ADAM_BETA2, ADAM_EPS)


def test_the_learning_rate_and_the_rank_are_the_cookbooks() -> None:
    (config,) = [each for each in cookbooks_rl_loop().body if isinstance(each, ast.ClassDef) and each.name == "Config"]
    fields = {ast.unparse(each.target): each.value for each in config.body if isinstance(each, ast.AnnAssign)}
    for name in ("learning_rate", "lora_rank"):
        assert TrainerSettings.model_fields[name].default == ast.literal_eval(fields[name] or ast.Constant(None)), name


def test_the_rank_of_a_request_that_names_none_is_the_sdks() -> None:
    parameters = inspect.signature(ServiceClient.create_lora_training_client).parameters
    assert parameters["rank"].default == DEFAULT_LORA.rank


GIVEN = [
    ({"loss": "cispo"}, POLICY_LOSSES["cispo"].clips),
    ({"loss": "cispo", "clip_low_threshold": None, "clip_high_threshold": None}, POLICY_LOSSES["cispo"].clips),
    ({"loss": "cispo", "clip_high_threshold": 8.0}, ClipThresholds(0.0, 8.0)),
    ({"loss": "cispo", "clip_low_threshold": 0.5}, ClipThresholds(0.5, 4.0)),
    ({"loss": "ppo", "clip_low_threshold": 0.0}, ClipThresholds(0.0, 1.2)),
]


@pytest.mark.parametrize(("given", "used"), GIVEN)
def test_a_threshold_that_is_not_given_is_the_losss_own(given: dict[str, Any], used: ClipThresholds) -> None:
    assert trainer_clips(**given) == used
