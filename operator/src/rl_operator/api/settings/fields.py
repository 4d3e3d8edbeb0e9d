"""The config file's fields as the operator knows them: the trainer's, the shared ones and the wired ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rl_contract.setting_table import Setting, Smallest, settings_of
from rl_contract.shared_env import SharedEnvSection
from rl_contract.trainer_settings import TrainerSettings
from rl_operator.api.catalog import EnvironmentField

Section = Literal["env", "openai", "tinker"]

ROLLOUT_SECONDS: Final = "rollout_seconds"
"""The field of `env` with the longest time of a rollout, of environments whose rollouts have one."""

_SETTINGS: Final[Mapping[Section, Mapping[str, Setting]]] = {
    "env": settings_of(SharedEnvSection),
    "tinker": settings_of(TrainerSettings),
}

SHARED_FIELDS: Final = tuple(name for name, setting in _SETTINGS["env"].items() if setting.required)
"""Fields of `env` that trainer, api and environment must agree on: always rendered, so that no default can differ."""

SHARED_NUMBERS: Final = tuple(name for name in SHARED_FIELDS if _SETTINGS["env"][name].type == "int")

SMALLEST: Final[Mapping[tuple[Section, str], Smallest]] = {
    (section, name): setting.smallest
    for section, settings in _SETTINGS.items()
    for name, setting in settings.items()
    if setting.smallest is not None
}
"""The smallest values that ever make sense, whatever a runtime's bounds are."""

LARGEST: Final[Mapping[tuple[Section, str], float]] = {
    (section, name): setting.largest
    for section, settings in _SETTINGS.items()
    for name, setting in settings.items()
    if setting.largest is not None
}
"""The largest values that any run could mean."""


@dataclass(frozen=True, slots=True)
class WiredField:
    """A value that the renderer sets. `instead` says how to get the desired effect."""

    section: Section
    name: str
    instead: str


_ADDRESS = "addresses are chosen by the platform and travel as environment variables: leave the field out"
_KEY = "keys come from the Secrets that the runtime names: leave the field out, and never write a key into a run"
_WANDB = "set spec.wandb.{} instead"
_FILES = "checkpoints are kept by the backend, and folders are chosen by the platform: leave the field out"

WIRED_FIELDS: Final = {
    (field.section, field.name): field
    for field in (
        WiredField("env", "rollout_server_url", _ADDRESS),
        WiredField("env", "base_url", _ADDRESS),
        WiredField("env", "api_key", _KEY),
        WiredField("openai", "base_url", _ADDRESS),
        WiredField("openai", "api_key", _KEY),
        WiredField("tinker", "base_url", _ADDRESS),
        WiredField("tinker", "api_key", _KEY),
        WiredField("tinker", "checkpoint_dir", _FILES),
        WiredField("tinker", "wandb_project", _WANDB.format("project")),
        WiredField("tinker", "wandb_group", _WANDB.format("group")),
        WiredField("tinker", "wandb_run_name", _WANDB.format("name")),
    )
}


def _field(setting: Setting) -> EnvironmentField:
    """Without its range, which SMALLEST and LARGEST have: those are looked at before the type."""
    return EnvironmentField(
        name=setting.name,
        type=setting.type,
        default=setting.default,
        description=setting.description,
        min_length=setting.min_length,
        max_length=setting.max_length,
    )


TRAINER_FIELDS: Final = {
    name: _field(setting) for name, setting in _SETTINGS["tinker"].items() if ("tinker", name) not in WIRED_FIELDS
}
"""The trainer's fields that a run may name."""
