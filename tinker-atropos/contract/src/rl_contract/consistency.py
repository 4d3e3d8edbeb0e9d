"""What no setting can tell alone: rules over the settings of a run together, for the operator and for its processes.

A rule looks at values that may be of any type, because the operator names all mistakes of a file at once; one that is
wrong by itself is refused for that. Values go by the names of `setting_rows`. Sentences name fields by where the
reader has set them: see `Names`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from rl_contract.trainer_settings import LORA_LAYERS


@dataclass(frozen=True, slots=True)
class Names:
    """Where the reader of a sentence has set the fields: `spec.config` in a run, `env` in a config file."""

    env: str
    trainer: str


CONFIG_FILE: Final = Names(env="env", trainer="tinker")


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """A field that does not fit to others. `hint` has `{env}` and `{trainer}` for the names of the sections."""

    section: Literal["env", "trainer"]
    field: str
    value: Any
    hint: str

    def path(self, names: Names) -> str:
        return f"{names.env if self.section == 'env' else names.trainer}.{self.field}"

    def sentence(self, names: Names) -> str:
        return f"{self.path(names)} is {self.value!r}: {self.told(names)}"

    def told(self, names: Names) -> str:
        """The hint, with the names of this reader."""
        return self.hint.replace("{env}", names.env).replace("{trainer}", names.trainer)


Values = Mapping[str, Any]
Rule = Callable[[Values, Values], Iterator[Inconsistency]]


def whole_groups(env: Values, _: Values) -> Iterator[Inconsistency]:
    batch_size, group_size = _count(env, "batch_size"), _count(env, "group_size")
    if batch_size and group_size and batch_size % group_size:
        yield Inconsistency(
            "env",
            "batch_size",
            batch_size,
            f"a batch holds whole groups, and {batch_size} rollouts cannot be divided into groups of {group_size} "
            f"(group_size): set batch_size to {math.ceil(batch_size / group_size) * group_size}, say",
        )


def evaluated_early_stop(env: Values, trainer: Values) -> Iterator[Inconsistency]:
    """Without evaluations nothing tells when to stop."""
    at, patience = "early_stopping.stop_at", "early_stopping.patience"
    for name, value in ((at, trainer.get(at)), (patience, trainer.get(patience) or None)):
        if env.get("steps_per_eval") == 0 and value is not None:
            yield Inconsistency(
                "trainer",
                name,
                value,
                f"the run has no evaluations that could end it, because steps_per_eval is 0: set "
                f"{{env}}.steps_per_eval to 1 or more, or leave {name} out",
            )


def group_for_each_substep(env: Values, trainer: Values) -> Iterator[Inconsistency]:
    batch_size, group_size = _count(env, "batch_size"), _count(env, "group_size")
    substeps = _count(trainer, "num_substeps")
    groups = batch_size // group_size if batch_size and group_size else None
    if groups is not None and substeps and substeps > max(groups, 1):
        yield Inconsistency(
            "trainer",
            "num_substeps",
            substeps,
            f"a batch holds {groups} groups (batch_size / group_size), and each optimizer step needs one: lower it, or "
            f"raise {{env}}.batch_size",
        )


def some_layer(_: Values, trainer: Values) -> Iterator[Inconsistency]:
    if not any(trainer.get(name, True) for name in LORA_LAYERS):
        yield Inconsistency(
            "trainer",
            LORA_LAYERS[0],
            False,
            f"{', '.join(LORA_LAYERS)} are all false, and nothing would be trained: set one of them to true",
        )


def compared_rollouts(env: Values, trainer: Values) -> Iterator[Inconsistency]:
    """Whoever lets groups of equal scores through has another signal than their advantages, such as a teacher's."""
    if env.get("group_size") == 1 and env.get("ensure_scores_are_not_same", True) and not env.get("teacher_top_k"):
        yield Inconsistency(
            "env",
            "group_size",
            1,
            f"an advantage ({trainer.get('advantage')}) compares the rollouts of a group, and in a group of one there "
            f"is nothing to compare: set it to 2 or more",
        )


def trainable_lengths(env: Values, trainer: Values) -> Iterator[Inconsistency]:
    """Upstream drops longer rollouts with no more than a warning: a run could go on forever without a batch."""
    rollout, trained = _count(env, "max_token_length"), _count(trainer, "max_token_trainer_length")
    if rollout and trained and rollout > trained:
        yield Inconsistency(
            "env",
            "max_token_length",
            rollout,
            f"rollouts of up to {rollout} tokens would be dropped, because the trainer takes {trained} "
            f"(max_token_trainer_length): lower it, or raise {{trainer}}.max_token_trainer_length",
        )


CONFIG_RULES: Final[tuple[Rule, ...]] = (whole_groups, evaluated_early_stop, group_for_each_substep, some_layer)
"""Of every config file: the trainer refuses what breaks one, too."""

REQUEST_RULES: Final[tuple[Rule, ...]] = (compared_rollouts, trainable_lengths)
"""Of what a run asks for: their values are known where the environment's own defaults are, too."""


def inconsistencies(env: Values, trainer: Values, rules: Iterable[Rule]) -> Iterator[Inconsistency]:
    """What breaks a rule, in the order of the rules."""
    for rule in rules:
        yield from rule(env, trainer)


def _count(values: Values, name: str) -> int | None:
    """A number of at least 1; None for everything else."""
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
