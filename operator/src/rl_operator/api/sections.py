"""Which value wins: the environment's own < runtime defaults < the run < locked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rl_operator.api.catalog import CatalogEnvironment, EnvironmentField
from rl_operator.api.runtime import Runtime
from rl_operator.api.settings.fields import (
    ROLLOUT_SECONDS,
    SHARED_FIELDS,
    TRAINER_FIELDS,
    WIRED_FIELDS,
    Section,
    flattened,
)
from rl_operator.api.training_run import TrainingRun

WORKER_TIMEOUT: Final = "worker_timeout"
UNSET_WORKER_TIMEOUT: Final = 600
"""atroposlib's default, of which nobody can tell whether anybody meant it."""


@dataclass(frozen=True)
class Sections:
    """The values that were set, by section, and the shared fields of `env`, which are always present. `steps_per_eval`
    is, too, where it is known: the trainer saves the weights that the environment evaluates. Nested fields
    go by their names in the catalog (`taskset.size`).
    """

    env: dict[str, Any]
    openai: dict[str, Any]
    trainer: dict[str, Any]


def effective_sections(run: TrainingRun, runtime: Runtime, environment: CatalogEnvironment) -> Sections:
    """Merge in the order of precedence; keys in alphabetical order, so that equal settings give equal text.

    A runtime serves many environments: its values for fields that this one lacks are left out.
    """
    defaults, locked, known = runtime.spec.defaults, runtime.spec.locked, environment.fields_by_name
    shared: dict[str, object] = {name: known[name].default for name in SHARED_FIELDS if name in known}
    return Sections(
        env=_merge(
            "env",
            shared | _own_interval(known),
            _known_only(flattened(defaults.env, known), known),
            flattened(run.spec.config, known),
            _known_only(flattened(locked.env, known), known),
        ),
        openai=_merge("openai", defaults.openai, locked.openai),
        trainer=_merge(
            "trainer",
            _known_only(flattened(defaults.trainer, TRAINER_FIELDS), TRAINER_FIELDS),
            flattened(run.spec.trainer, TRAINER_FIELDS),
            flattened(locked.trainer, TRAINER_FIELDS),
        ),
    )


def base_model(env: Mapping[str, object], openai: Mapping[str, object]) -> str | None:
    """What a config file makes the trainer train an adapter of (`RunConfig.base_model` of tinker_atropos)."""
    model = openai.get("model_name") or env.get("tokenizer_name")
    return str(model) if model else None


def rollout_seconds(env: Mapping[str, object], environment: CatalogEnvironment) -> float | None:
    """How long a rollout with a sandbox pod may take, by the values of `Sections.env`; None: nothing says so."""
    field = field_of_rollout_seconds(env, environment)
    return _seconds(field, env, environment) if field else None


def field_of_rollout_seconds(env: Mapping[str, object], environment: CatalogEnvironment) -> str | None:
    """Which field of `env` bounds a rollout: `rollout_seconds`, or a `worker_timeout` that is less and not the default,
    wherever it was set. The environment has the same rule (tinker_atropos.environments.agent_environment).
    """
    longest, worker = (_seconds(name, env, environment) for name in (ROLLOUT_SECONDS, WORKER_TIMEOUT))
    if longest is None:
        return None
    caps = worker is not None and worker != UNSET_WORKER_TIMEOUT and worker < longest
    return WORKER_TIMEOUT if caps else ROLLOUT_SECONDS


def _seconds(name: str, env: Mapping[str, Any], environment: CatalogEnvironment) -> float | None:
    """None: the value is not known, or no time."""
    known = environment.fields_by_name.get(name)
    seconds = env.get(name, known.default if known else None)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return seconds if is_number and 0 < seconds < math.inf else None


def _own_interval(known: Mapping[str, EnvironmentField]) -> dict[str, int]:
    """The environment's own `steps_per_eval`. Authors turn evaluation off with -1, too; a value that only running
    `config_init` would tell is left out.
    """
    own = known["steps_per_eval"].default if "steps_per_eval" in known else None
    return {"steps_per_eval": max(0, own)} if type(own) is int else {}


def _merge(section: Section, *layers: Mapping[str, object]) -> dict[str, object]:
    merged = {name: value for layer in layers for name, value in layer.items()}
    return {name: _ordered(merged[name]) for name in sorted(merged) if (section, name) not in WIRED_FIELDS}


def _ordered(value: object) -> object:
    """The same JSON with the keys of its mappings in alphabetical order."""
    match value:
        case Mapping():
            return {key: _ordered(value[key]) for key in sorted(value)}
        case list() | tuple():
            return [_ordered(item) for item in value]
    return value


def _known_only(values: Mapping[str, object], known: Mapping[str, object]) -> dict[str, object]:
    """The values of known fields; all of them if nothing is known about the fields."""
    return {name: value for name, value in values.items() if not known or name in known or name in SHARED_FIELDS}


def same_value(left: object, right: object) -> bool:
    """Equal as JSON: 1 equals 1.0, but true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same_value(value, right[name]) for name, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    return bool(left == right)
