"""The run's config file: sections and field names as tinker-atropos had them, checked strictly.

Only the fields that this package reads are typed here. `env` and `openai` belong to the environment: its runner
checks them against the environment's own config class.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tinker_atropos.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ClipThresholds:
    """The lowest and the highest probability ratio r = p / q that a loss uses."""

    low: float
    high: float

    def as_loss_config(self) -> dict[str, float]:
        """Under Tinker's names."""
        return {"clip_low_threshold": self.low, "clip_high_threshold": self.high}


CLIP_THRESHOLDS: Final[Mapping[str, ClipThresholds]] = {
    "ppo": ClipThresholds(0.8, 1.2),
    "cispo": ClipThresholds(0.0, 4.0),
}
"""What the losses that clip use unless thresholds are given: Tinker's own defaults (tinker-cookbook's
tutorials/202_loss_functions.py). ppo's are those of Schulman et al. 2017 (arXiv:1707.06347); cispo has no lower bound
(MiniMax-M1, arXiv:2506.13585), and 4 to 8 are equally good above (ScaleRL, arXiv:2510.13786).
"""


class SharedEnvSection(BaseModel):
    """The fields of `env` that trainer, api and environment must agree on. Others pass through."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    total_steps: int = Field(gt=0)
    group_size: int = Field(gt=0)
    batch_size: int = Field(gt=0, description="rollouts per optimizer step, a multiple of group_size")
    tokenizer_name: str
    max_token_length: int = Field(gt=0)
    max_batches_offpolicy: int = Field(default=3, ge=1, description="bounds the queue, in batches")
    tool_call_parser: str | None = Field(default=None, description="a tool format; null: that of the model's family")
    steps_per_eval: int = Field(default=100, ge=0, description="steps between evaluations; 0: none at all")

    def evaluates_at(self, step: int) -> bool:
        """Whether the weights after a step are to be evaluated."""
        return bool(self.steps_per_eval) and (step % self.steps_per_eval == 0 or step == self.total_steps)


class TinkerSection(BaseModel):
    """The trainer's fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lora_rank: int = Field(default=32, gt=0)
    learning_rate: float = Field(default=4e-5, gt=0)
    advantage: Literal["group_centered", "leave_one_out", "group_normalized"] = "group_centered"
    loss: Literal["importance_sampling", "ppo", "cispo"] = "importance_sampling"
    clip_low_threshold: float | None = Field(
        default=None, ge=0, le=1, description="lowest ratio that ppo and cispo use; null: the loss's own"
    )
    clip_high_threshold: float | None = Field(
        default=None, ge=1, description="highest ratio that ppo and cispo use; null: the loss's own"
    )
    distill_coefficient: float = Field(default=1.0, ge=0, description="weight of the teacher's log-ratio per token")
    max_token_trainer_length: int = Field(default=9000, gt=0, description="longest trained sequence, in tokens")
    max_staleness: int = Field(default=8, ge=0, description="oldest policy that is trained on, in policy steps")
    missing_logprobs: Literal["recompute", "refuse"] = "recompute"
    kl_warning: float = Field(default=0.05, gt=0, description="warn past this KL of sampler and trainer, fresh tokens")
    max_context_overflows: int = Field(default=100, gt=0, description="too long prompts in a row without a batch")
    save_checkpoint_interval: int = Field(default=25, gt=0, description="steps between state checkpoints")
    keep_checkpoints: int = Field(default=3, ge=1, description="newest state checkpoints that are kept")
    keep_checkpoint_every: int = Field(default=0, ge=0, description="steps whose checkpoints are kept, too; 0: none")
    checkpoint_ttl_days: int = Field(default=30, ge=30, description="after which the backend may delete a checkpoint")
    checkpoint_dir: str = "./temp/"
    seed: int = Field(default=0, ge=0, description="seed of the LoRA initialization")
    eval_metric: str | None = Field(
        default=None, min_length=1, max_length=128, description="the held-out figure; null: the environment's own"
    )
    eval_deadline_seconds: float = Field(default=600, gt=0, description="longest that training waits for an evaluation")
    backend_deadline_seconds: float = Field(default=300, gt=0, description="longest wait for one backend call")
    wandb_project: str | None = None
    wandb_group: str | None = None
    wandb_run_name: str | None = None
    keep_rollouts_mb: int = Field(
        default=256, ge=0, le=1_000_000, description="room for files with every rollout, in megabytes; 0: none is kept"
    )
    wandb_samples_interval: int = Field(default=20, ge=0, description="steps between tables of rollouts; 0: none")

    @property
    def clip_thresholds(self) -> ClipThresholds | None:
        """The given thresholds, else those of the loss; None for a loss that does not clip."""
        own = CLIP_THRESHOLDS.get(self.loss)
        if own is None:
            return None
        low, high = self.clip_low_threshold, self.clip_high_threshold
        return ClipThresholds(own.low if low is None else low, own.high if high is None else high)


class RunConfig(BaseModel):
    """One run's configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    env: SharedEnvSection
    openai: list[dict[str, Any]] = Field(default_factory=list)
    tinker: TinkerSection = Field(default_factory=TinkerSection)
    slurm: Any = False
    testing: Any = False

    @property
    def base_model(self) -> str:
        """The model to train: the inference server's model name, else the tokenizer's."""
        name = self.openai[0].get("model_name") if self.openai else None
        return str(name or self.env.tokenizer_name)


def load_config(path: Path) -> RunConfig:
    """Read and check a config file. Raises ConfigError naming the field, the value and what is allowed."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=Yaml12Loader)  # noqa: S506 -- a SafeLoader
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} must hold a mapping with the sections {', '.join(RunConfig.model_fields)}")
    return parse_config(document)


def parse_config(document: Mapping[str, Any]) -> RunConfig:
    """Check a parsed config. Raises ConfigError on the first thing that is wrong."""
    try:
        config = RunConfig.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None
    batch_size, group_size = config.env.batch_size, config.env.group_size
    if batch_size % group_size:
        raise ConfigError(
            f"env.batch_size is {batch_size} and env.group_size is {group_size}: a batch holds whole groups, "
            f"so batch_size must be a multiple of group_size"
        )
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


_KNOWN_KEYS = {(): RunConfig.model_fields, ("tinker",): TinkerSection.model_fields}


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    location = first["loc"]
    field = ".".join(map(str, location))
    if first["type"] == "extra_forbidden":
        known = _KNOWN_KEYS[tuple(str(part) for part in location[:-1])]
        return f"{field} is not a known field{nearest(str(location[-1]), known)} (known: {', '.join(known)})"
    if first["type"] == "missing":
        return f"{field} is missing"
    return f"{field} is {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
