"""The learning rate of each step, and the optimizer steps that a batch is divided into.

Of step s (0 is the first) of n = total_steps, with a warm-up of w = `warmup_steps`, the learning rate is

    lr (s + 1) / w                              if s < w, else by `learning_rate_schedule`
    lr                                          constant
    lr (1 - (s - w) / (n - w))                  linear
    lr (1 + cos(pi (s - w) / (n - w))) / 2      cosine

Without a warm-up these are tinker-cookbook's (utils/lr_scheduling.py). Only the step
decides, so an attempt that continues, or a step that is replayed, has the same rate.

`trainer.learning_rate: auto` is tinker-cookbook's rule for LoRA, in which the best rate falls with the model's width:

    5e-4 * (2000 / hidden_size) ** exponent

(tinker-cookbook 0.6.1, hyperparam_utils.get_lr: 5e-5, ten times that for LoRA.) The exponents are fitted, for two
families. For other models there is no rule, and a guess would be a run that learns nothing, or one that diverges.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from rl_contract.bundled import BUNDLED
from tinker_atropos.chat.model_config import read_model_config
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import ConfigError
from tinker_atropos.trainer.data.datums import Datum

SCHEDULES: Final[Mapping[str, Callable[[float], float]]] = {
    "constant": lambda _: 1.0,
    "linear": lambda share: 1 - share,
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
}
"""The factor of the learning rate by the share of the steps after the warm-up that are done."""


def learning_rate_at(step: int, config: RunConfig) -> float:
    """Of the policy step with that number: all of its optimizer steps have the same."""
    tinker, warmup = config.tinker, config.tinker.warmup_steps
    peak = tinker.learning_rate
    assert peak != "auto", "with_learning_rate has put a number in its place"
    if step < warmup:
        return peak * (step + 1) / warmup
    share = (step - warmup) / max(config.env.total_steps - warmup, 1)
    return peak * SCHEDULES[tinker.learning_rate_schedule](share)


def dealt_out(datums: Sequence[Datum], substeps: int) -> list[list[Datum]]:
    """The datums of each of so many optimizer steps: whole groups, in order, as evenly as they can be divided. Of
    groups that have an advantage there may be fewer.
    """
    groups = list(dict.fromkeys(datum.group for datum in datums))
    shares = [set(share.tolist()) for share in np.array_split(groups, min(substeps, len(groups)))]
    return [[datum for datum in datums if datum.group in share] for share in shares]


def gradient_metrics(answers: Sequence[Mapping[str, float]], tokens: Sequence[int]) -> dict[str, float]:
    """`train/grad_norm`, before clipping: the mean over a policy step's optimizer steps, of a backend that reports it
    (`grad_norm`, or `grad_norm:REDUCTION` as Tinker names metrics). Each is of a loss that is a sum over so many
    `tokens`: `train/grad_norm_per_token` is that of their mean.
    """
    norms = [
        (norm, norm / count)
        for answer, count in zip(answers, tokens, strict=True)
        for name, norm in answer.items()
        if name.split(":")[0] == "grad_norm"
    ]
    if not norms:
        return {}
    of_sum, of_mean = np.mean(norms, axis=0).tolist()
    return {"train/grad_norm": of_sum, "train/grad_norm_per_token": of_mean}


logger = logging.getLogger(__name__)

LORA_RATE: Final = 5e-4
REFERENCE_WIDTH: Final = 2000
EXPONENTS: Final[Mapping[str, float]] = {"llama": 0.781, "qwen": 0.0775}

WIDTHS: Final[Mapping[str, int]] = {
    "meta-llama/Llama-3.2-1B": 2048,
    "meta-llama/Llama-3.2-3B": 3072,
    "meta-llama/Llama-3.1-8B": 4096,
    "meta-llama/Llama-3.1-8B-Instruct": 4096,
    "meta-llama/Llama-3.1-70B": 8192,
    "meta-llama/Llama-3.3-70B-Instruct": 8192,
    "Qwen/Qwen3-4B-Instruct-2507": 2560,
    "Qwen/Qwen3-8B": 4096,
    "Qwen/Qwen3-8B-Base": 4096,
    "Qwen/Qwen3-30B-A3B": 2048,
    "Qwen/Qwen3-30B-A3B-Base": 2048,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": 2048,
    "Qwen/Qwen3-32B": 5120,
    "Qwen/Qwen3-235B-A22B-Instruct-2507": 4096,
    "Qwen/Qwen3-VL-30B-A3B-Instruct": 2048,
    "Qwen/Qwen3-VL-235B-A22B-Instruct": 4096,
    "Qwen/Qwen3.5-4B": 2560,
    "Qwen/Qwen3.5-9B": 4096,
    "Qwen/Qwen3.5-9B-Base": 4096,
    "Qwen/Qwen3.5-27B": 5120,
    "Qwen/Qwen3.5-35B-A3B": 2048,
    "Qwen/Qwen3.5-35B-A3B-Base": 2048,
    "Qwen/Qwen3.5-397B-A17B": 4096,
    "Qwen/Qwen3.6-27B": 5120,
    "Qwen/Qwen3.6-35B-A3B": 2048,
    "Qwen/Qwen3.8-27B": 5120,
}
"""Hidden sizes of models that Tinker serves, from their public configs: several are gated."""


def with_learning_rate(config: RunConfig) -> RunConfig:
    """The config with a number in place of auto. Raises ConfigError if the rule has none for the model."""
    if config.tinker.learning_rate != "auto":
        return config
    rate = automatic_learning_rate(config.base_model, config.env.tokenizer_name)
    logger.info("trainer.learning_rate: auto is %.3g for %s", rate, config.base_model)
    tinker = config.tinker.model_copy(update={"learning_rate": rate})
    return config.model_copy(update={"tinker": tinker})


def automatic_learning_rate(base_model: str, tokenizer_name: str) -> float:
    """By the model's hidden size. A local folder, and the bundled model, are known by their tokenizer's name: a Tinker
    service may serve them under any other.
    """
    name = base_model.split(":", 1)[0]  # Qwen/Qwen3-8B:peft:262144 is served by Tinker
    kind, width = name, WIDTHS.get(name)
    if width is None:
        local = tokenizer_name == BUNDLED or Path(tokenizer_name).is_absolute()
        found = read_model_config(tokenizer_name if local else name)
        if found is None or not found.hidden_size:
            raise _unknown(base_model, "the config of that model, with its hidden size, cannot be read")
        kind, width = found.kind, found.hidden_size
    family = next((family for family in EXPONENTS if family in kind.lower()), None)
    if family is None:
        raise _unknown(base_model, f"the rule is known for models of the families {' and '.join(EXPONENTS)}")
    return float(LORA_RATE * (REFERENCE_WIDTH / width) ** EXPONENTS[family])


def _unknown(base_model: str, why: str) -> ConfigError:
    return ConfigError(
        f"trainer.learning_rate is 'auto', and for the model {base_model!r} no rate can be computed: {why}; "
        f"set trainer.learning_rate to a number, such as 4e-5"
    )
