"""The config file's fields as the operator knows them: the trainer's, the shared ones and the wired ones.

A catalog lists `taskset.size`, and a file has `taskset: {size: 3}`: rules and listings know such a field by its dotted
name, so that it is like every other; files, runtimes and the rendered config have it nested, one level deep.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

from rl_contract.setting_rows import Setting, Smallest, settings_of
from rl_contract.shared_env import SharedEnvSection
from rl_contract.trainer_settings import TrainerSettings
from rl_operator.api.catalog import EnvironmentField


def outer_names(known: Collection[str]) -> frozenset[str]:
    """`taskset`, if `taskset.size` is a field. A field that is a mapping itself holds no fields."""
    return frozenset(name.partition(".")[0] for name in known if "." in name).difference(known)


def steps_of(name: str, outer: Collection[str]) -> tuple[str, ...]:
    """The path of a field in a file: ("taskset", "size") for `taskset.size`."""
    first, dot, rest = name.partition(".")
    return (first, rest) if dot and first in outer else (name,)


def at_path(path: Collection[str], value: object) -> Any:
    """The value, nested: `{"taskset": {"size": 3}}` for 3 at ("taskset", "size")."""
    for step in reversed(tuple(path)):
        value = {step: value}
    return value


def flattened(values: Mapping[str, object], known: Collection[str]) -> dict[str, object]:
    """A file's values by the names of fields, where `known` are all names. A value that should be a mapping and is
    not stays under its outer name.
    """
    outer = outer_names(known)
    inside = {
        f"{name}.{inner}": each
        for name, value in values.items()
        if name in outer and isinstance(value, Mapping)
        for inner, each in value.items()
    }
    plain = {n: value for n, value in values.items() if n not in outer or not isinstance(value, Mapping)}
    return plain | inside


def nested(values: Mapping[str, object], known: Collection[str]) -> dict[str, object]:
    """The inverse of `flattened`, with the outer names in alphabetical order, too."""
    outer, found = outer_names(known), dict[str, Any]()
    for name, value in values.items():
        first, *inner = steps_of(name, outer)
        if inner:
            found.setdefault(first, {})[inner[0]] = value
        else:
            found[first] = value
    return {name: found[name] for name in sorted(found)}


Section = Literal["env", "openai", "trainer"]

ROLLOUT_SECONDS: Final = "rollout_seconds"
"""The field of `env` with the longest time of a rollout, of environments whose rollouts have one."""

_SETTINGS: Final[Mapping[Section, Mapping[str, Setting]]] = {
    "env": settings_of(SharedEnvSection),
    "trainer": settings_of(TrainerSettings),
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


_ADDRESS = "addresses are chosen by the platform and travel as environment variables: leave the field out"
_KEY = "keys come from the Secrets that the runtime names: leave the field out, and never write a key into a run"
_TEACHER = (
    "the teacher is the runtime's (its spec.teacher; in local mode the variable TEACHER_URL), because its key goes to "
    "that address: leave the field out, and choose a runtime that has a teacher"
)
_WANDB = "set spec.wandb.{} instead"
_FILES = "checkpoints are kept by the backend, and folders are chosen by the platform: leave the field out"

WIRED_FIELDS: Final[Mapping[tuple[Section, str], str]] = {
    ("env", "rollout_server_url"): _ADDRESS,
    ("env", "base_url"): _ADDRESS,
    ("env", "api_key"): _KEY,
    ("env", "teacher_url"): _TEACHER,
    ("openai", "base_url"): _ADDRESS,
    ("openai", "api_key"): _KEY,
    ("trainer", "base_url"): _ADDRESS,
    ("trainer", "api_key"): _KEY,
    ("trainer", "checkpoint_dir"): _FILES,
    ("trainer", "wandb_project"): _WANDB.format("project"),
    ("trainer", "wandb_group"): _WANDB.format("group"),
    ("trainer", "wandb_run_name"): _WANDB.format("name"),
}
"""Fields whose values the renderer sets, and how to get the desired effect instead."""


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
    name: _field(setting) for name, setting in _SETTINGS["trainer"].items() if ("trainer", name) not in WIRED_FIELDS
}
"""The trainer's fields that a run may name, nested ones as `early_stopping.patience`."""
