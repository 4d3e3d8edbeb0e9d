"""The config classes: the fields of all tasks, and those of one task's dataset, as its dataclass has them; and the
curriculum over one field of a task, whose value is raised once the policy is good at the present one.
"""

import dataclasses
import json
import typing
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, create_model

from tinker_atropos.config.run_config import nearest
from tinker_atropos.environments.base import EnvironmentConfig
from tinker_atropos.errors import ConfigError


class Curriculum(BaseModel):
    """`field` of the dataset takes the `levels` in their order. The next one follows when the mean reward of the last
    `window` rollouts at the present one is at least `raise_at`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str = Field(min_length=1)
    levels: list[Any] = Field(min_length=2)
    raise_at: float = Field(default=0.8, gt=0, le=1)
    window: int = Field(default=64, ge=8, le=4096)


class CurriculumProgress:
    """At which level a curriculum is. Without one there is a single level."""

    def __init__(self, curriculum: Curriculum | None) -> None:
        self._curriculum = curriculum
        self._rewards: deque[float] = deque(maxlen=curriculum.window if curriculum else 1)
        self.level = 0

    @property
    def last_level(self) -> int:
        return len(self._curriculum.levels) - 1 if self._curriculum else 0

    def fields_at(self, level: int) -> dict[str, Any]:
        """What the curriculum sets at a level."""
        return {self._curriculum.field: self._curriculum.levels[level]} if self._curriculum else {}

    def rewarded(self, level: int, rewards: Sequence[float]) -> bool:
        """Record a group's rewards; True if they raised the level. Groups of an earlier level do not count."""
        if self._curriculum is None or level != self.level or level == self.last_level:
            return False
        self._rewards.extend(rewards)
        mean = sum(self._rewards) / len(self._rewards)
        if len(self._rewards) < self._curriculum.window or mean < self._curriculum.raise_at:
            return False
        self.level += 1
        self._rewards.clear()
        return True

    def to_state(self) -> str | None:
        return json.dumps({"level": self.level}) if self._curriculum else None

    def restore(self, state: str) -> None:
        """Levels may have become fewer since. Raises ValueError for something else."""
        level = json.loads(state)["level"]
        self.level = min(int(level), self.last_level)
        self._rewards.clear()


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
