"""The config classes: the fields of all tasks, and those of one task's dataset, as its dataclass has them."""

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import Field, create_model

from tinker_atropos.config.run_config import nearest
from tinker_atropos.environments.adapters.reasoning_gym.curriculum import Curriculum
from tinker_atropos.environments.base import EnvironmentConfig
from tinker_atropos.errors import ConfigError

HELD_OUT_SEED: Final = 1_000_000_000
"""Added to the seed. Item i of seed s is made from the random numbers of s + i, so another seed must be far away."""

NOT_OF_THE_DATASET: Final = ("seed", "size")


class ReasoningGymConfig(EnvironmentConfig):
    """The fields that all tasks have."""

    seed: int = Field(default=0, ge=0, lt=HELD_OUT_SEED, description="Seed of the items to train on.")
    size: int = Field(default=10_000, gt=0, le=1_000_000, description="How many items there are to train on.")
    system_prompt: str = Field(
        default="default",
        description="One of the library's prompts (default, simple, direct, chain_of_draft, DeepSeekZero), a text of "
        "your own, or empty for none.",
    )
    scoring_seconds: float = Field(default=10.0, gt=0, description="Longest time to score an answer.")


class TaskConfig(ReasoningGymConfig):
    """A single task. Its own class adds the fields of its dataset."""

    curriculum: Curriculum | None = Field(
        default=None,
        description="Raise a field's difficulty: {field, levels, raise_at, window}. The next level follows when the "
        "mean reward of the last `window` (64) rollouts is `raise_at` (0.8) or more.",
    )


class MixConfig(ReasoningGymConfig):
    """Several tasks."""

    tasks: dict[str, float] = Field(
        default={"chain_sum": 1.0, "number_sorting": 1.0, "spell_backward": 1.0},
        min_length=1,
        description="The tasks, each with its weight: how often its items come.",
    )
    task_config: dict[str, dict[str, Any]] = Field(
        default={}, description="Fields of the tasks' datasets, by task: {chain_sum: {max_terms: 3}}."
    )


def _datasets() -> Mapping[str, tuple[Any, Any]]:
    """Dataset and config class of each task. The first call imports the library, which takes a second."""
    from tinker_atropos.environments.adapters.reasoning_gym.library import DATASETS

    datasets: Mapping[str, tuple[Any, Any]] = DATASETS
    return datasets


def check_tasks(names: Iterable[str], field: str) -> None:
    """Raises ConfigError for a name that is not a task."""
    known = _datasets()
    for name in names:
        if name not in known or name == "composite":
            raise ConfigError(f"{field} names {name!r}, which is not a task of reasoning-gym{nearest(name, known)}")


def dataset_fields(task: str) -> tuple[str, ...]:
    """Without those that all tasks have."""
    _, config = _datasets()[task]
    return tuple(each.name for each in dataclasses.fields(config) if each.name not in NOT_OF_THE_DATASET)


def config_class_of(task: str) -> type[TaskConfig]:
    """`TaskConfig` with the dataset's fields: types and defaults are the library's."""
    _, config = _datasets()[task]
    types = typing.get_type_hints(config)
    fields: dict[str, Any] = {
        each.name: (types[each.name], _default(each))
        for each in dataclasses.fields(config)
        if each.name not in NOT_OF_THE_DATASET
    }
    made: type[TaskConfig] = create_model(f"{config.__name__}Fields", __base__=TaskConfig, **fields)
    return made


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return Field(default_factory=field.default_factory)
    return Field(default=None if field.default is dataclasses.MISSING else field.default)
