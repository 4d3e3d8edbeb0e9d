"""The run's config file: sections and field names as tinker-atropos had them, checked strictly.

Only the fields that this package reads are typed here. `env` and `openai` belong to the environment: its runner
checks them against the environment's own config class.
"""

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_contract.consistency import CONFIG_FILE, CONFIG_RULES, inconsistencies
from rl_contract.setting_rows import values_of
from rl_contract.shared_env import SharedEnvSection
from rl_contract.trainer_settings import EarlyStopping, RolloutSampling, TrainerSettings
from tinker_atropos.errors import ConfigError


class RunConfig(BaseModel):
    """One run's configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    env: SharedEnvSection
    openai: list[dict[str, Any]] = Field(default_factory=list)
    tinker: TrainerSettings = Field(default_factory=TrainerSettings)
    slurm: Any = False
    testing: Any = False

    @property
    def base_model(self) -> str:
        """The model to train: the inference server's model name, else the tokenizer's."""
        name = self.openai[0].get("model_name") if self.openai else None
        return str(name or self.env.tokenizer_name)


def load_config(path: Path, sha256: str | None = None) -> RunConfig:
    """Read and check a config file: only the one with that hash, if one is given. Raises ConfigError naming the field,
    the value and what is allowed.
    """
    try:
        content = path.read_bytes()
        if sha256:
            require_same(f"the config file {path}", hashlib.sha256(content).hexdigest(), sha256)
        document = yaml.load(content.decode(), Loader=Yaml12Loader)  # noqa: S506 -- a SafeLoader
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} must hold a mapping with the sections {', '.join(RunConfig.model_fields)}")
    return parse_config(document)


def require_same(what: str, found: str, sha256: str) -> None:
    """Raises ConfigError if something was exchanged since the run was started."""
    if found != sha256:
        raise ConfigError(
            f"TemplateChanged: {what} is not what the run was started with: its SHA-256 is {found}, not {sha256}; "
            "someone has exchanged the ConfigMap that it is from"
        )


def parse_config(document: Mapping[str, object]) -> RunConfig:
    """Check a parsed config. Raises ConfigError on the first thing that is wrong."""
    try:
        config = RunConfig.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None
    found = next(inconsistencies(config.env.model_dump(), values_of(config.tinker), CONFIG_RULES), None)
    if found is not None:
        raise ConfigError(found.sentence(CONFIG_FILE))
    return config


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelled name: `; did you mean 'lora_rank'?`, or nothing."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


class Yaml12Loader(yaml.SafeLoader):
    """SafeLoader that reads numbers as YAML 1.2 does: `4e-5` is a number, not a string."""


Yaml12Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)$"),
    list("-+0123456789."),
)


_KNOWN_KEYS = {
    (): RunConfig.model_fields,
    ("tinker",): TrainerSettings.model_fields,
    ("tinker", "early_stopping"): EarlyStopping.model_fields,
    ("tinker", "sampling"): RolloutSampling.model_fields,
}


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    location = first["loc"]
    messages = [first["msg"]]
    if location[0] == "tinker" and location[:2] not in _KNOWN_KEYS and len(location) == 3:  # each type refuses it
        location = location[:2]
        messages = [each["msg"] for each in error.errors() if each["loc"][:2] == location]
    field, said = ".".join(map(str, location)), messages[0][0].lower() + " or ".join(messages)[1:]
    if first["type"] == "extra_forbidden":
        known = _KNOWN_KEYS[tuple(str(part) for part in location[:-1])]
        return f"{field} is not a known field{nearest(str(location[-1]), known)} (known: {', '.join(known)})"
    if first["type"] == "missing":
        return f"{field} is missing"
    return f"{field} is {first['input']!r}: {said.replace(' or Input should be ', ' or ')}"
