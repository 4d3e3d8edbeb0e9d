"""`reasoning-gym/NAME`: one of the library's tasks, and `reasoning-gym/mix`: several, by weight.

System prompt, answer format and grader are the library's, and so are the fields of a task's dataset. Held-out items
are those of another seed. A curriculum raises the value of one field once the policy is good at the present one.
"""

import asyncio
import contextlib
import dataclasses
import json
import logging
import typing
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, create_model

from tinker_atropos.config.run_config import nearest
from tinker_atropos.environments.adapters.adapter_fields import VALUES
from tinker_atropos.environments.adapters.reasoning_gym.task_catalog import FAMILY, MIX, OURS
from tinker_atropos.environments.adapters.reasoning_gym.task_worker import (
    TaskItem,
    TaskItems,
    TaskSettings,
    TaskWorkers,
    forking_server,
    held_out,
)
from tinker_atropos.environments.base import Environment, EnvironmentConfig, Message
from tinker_atropos.environments.items.grader_check import ITEMS
from tinker_atropos.environments.items.held_out import MOST_SETS, HeldOutSets
from tinker_atropos.environments.items.item_order import ItemOrder, LeftOut, shares_of
from tinker_atropos.errors import ConfigError

logger = logging.getLogger(__name__)

HELD_OUT_SEED: Final = 1_000_000_000
"""Added to the seed. Item i of seed s is made from the random numbers of s + i, so another seed must be far away."""

AHEAD: Final = 64
"""Positions whose items are made ahead of use. A batch is a few groups, so this is some steps' worth."""


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
    return tuple(each.name for each in dataclasses.fields(config) if each.name not in OURS)


def config_class_of(task: str) -> type[TaskConfig]:
    """`TaskConfig` with the dataset's fields: types and defaults are the library's."""
    _, config = _datasets()[task]
    types = typing.get_type_hints(config)
    fields: dict[str, Any] = {
        each.name: (types[each.name], _default(each)) for each in dataclasses.fields(config) if each.name not in OURS
    }
    made: type[TaskConfig] = create_model(f"{config.__name__}Fields", __base__=TaskConfig, **fields)
    return made


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return Field(default_factory=field.default_factory)
    return Field(default=None if field.default is dataclasses.MISSING else field.default)


class ReasoningGymEnvironment(Environment[TaskItem], ABC):
    """What a task and a mixture share. `tasks` gives each one's weight."""

    _started: TaskWorkers | None = None
    """None until `setup`, which may refuse the settings before anything is started."""

    _newest = -1
    """The highest position that was asked for, and below, the highest whose item was made ahead."""

    _prepared = -1
    _making_ahead: asyncio.Task[None] | None = None

    @property
    @abstractmethod
    def tasks(self) -> Mapping[str, float]: ...

    @abstractmethod
    def fields_of(self, task: str) -> Mapping[str, object]:
        """What its dataset is made with, before a curriculum."""

    async def setup(self) -> None:
        """Raises ConfigError if the library refuses the settings."""
        config = self.config
        self._scores = []
        self._rewards: dict[str, list[float]] = defaultdict(list)
        self._unjudged: Counter[str] = Counter()
        self._progress = CurriculumProgress(getattr(config, "curriculum", None))
        self._started = TaskWorkers(config.scoring_seconds)
        self._items = TaskItems(self._started, config.seed)
        await self._check_settings()
        wanted = config.eval_items if config.steps_per_eval > 0 else ITEMS  # the grader is checked on some in any case
        share = -(-wanted // len(self.tasks))
        seed = config.seed + HELD_OUT_SEED
        last = self._progress.last_level
        of_tasks = [await held_out(self._workers, self._settings(task, last), seed, share) for task in self.tasks]
        self._held_out = [item for items in zip_longest(*of_tasks) for item in items if item is not None]

    @property
    def _workers(self) -> TaskWorkers:
        assert self._started is not None, "setup comes first"
        return self._started

    @cached_property
    def order(self) -> ItemOrder:
        """`size` items of each task. A curriculum's level makes other items of them, and leaves their order."""
        return ItemOrder(self.config.item_seed, self.config.size, shares_of(list(self.tasks.values())))

    async def item_in_order(self, position: int) -> TaskItem | LeftOut:
        self._newest = max(self._newest, position)
        item = await self._made(position)
        if self._making_ahead is None or self._making_ahead.done():
            self._making_ahead = asyncio.create_task(self._make_ahead(), name="items ahead")
        return item

    async def _made(self, position: int) -> TaskItem:
        place, level = self.order.at(position), self._progress.level
        return await self._items.item(self._settings(list(self.tasks)[place.kind], level), place.index, level)

    async def _make_ahead(self) -> None:
        """One at a time: who waits for an item comes first. What fails is tried again when it is asked for."""
        with contextlib.suppress(Exception):
            while (position := max(self._prepared, self._newest) + 1) <= self._newest + AHEAD:
                await self._made(position)
                self._prepared = position

    def training_items(self) -> Sequence[TaskItem]:
        """Those that were made so far, at the present level."""
        level = self._progress.level
        return [item for item in self._items.known if item.level == level and not self.is_held_out(item)]

    def held_out_items(self) -> Sequence[TaskItem]:
        """At the last level of a curriculum: what the policy is to become good at."""
        return self._held_out

    def held_out_sets(self) -> HeldOutSets[TaskItem]:
        """The sets of a mixture: each task's share of those that an evaluation samples, unless there are too many
        tasks.
        """
        if not 1 < len(self.tasks) <= MOST_SETS:
            return {}
        evaluated = self._held_out[: self.items_evaluated()]
        of_task = {task: [item for item in evaluated if item.settings.task == task] for task in self.tasks}
        return {task: items for task, items in of_task.items() if items}

    def prompt(self, item: TaskItem) -> list[Message]:
        from tinker_atropos.environments.adapters.reasoning_gym.library import SYSTEM_PROMPTS

        system = SYSTEM_PROMPTS.get(self.config.system_prompt, self.config.system_prompt)
        first = [{"role": "system", "content": system}] if system else []
        return [*first, {"role": "user", "content": item.question}]

    def score(self, item: TaskItem, completion: str) -> float:
        raise NotImplementedError("graders run in processes of their own: score_answer")

    async def score_answer(self, item: TaskItem, answer: str) -> float:
        """An answer that the library's grader raises on is not right."""
        score = await self._workers.score(item.settings, answer, item.entry)
        if isinstance(score, float):
            return score
        self._unjudged[item.settings.task] += 1
        logger.warning("the grader of %s raised on an answer, which gets 0: %s", item.settings.task, score)
        return 0.0

    def gold_answer(self, item: TaskItem) -> str | None:
        answer = item.entry["answer"]
        return None if answer is None else _formatted(str(answer))

    def wrong_answers(self, item: TaskItem) -> Sequence[str]:  # noqa: ARG002 -- wrong for any
        return _formatted(""), _formatted("this is not the answer")

    def was_rewarded(self, item: TaskItem, rewards: Sequence[float]) -> None:
        super().was_rewarded(item, rewards)
        self._rewards[item.settings.task] += rewards
        if self._progress.rewarded(item.level, rewards):
            logger.info("curriculum: level %d of %d", self._progress.level, self._progress.last_level)
            self._prepared = -1

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        level = {"curriculum/level": self._progress.level} if self._progress.last_level else {}
        rewards = {f"reward/{task}": sum(each) / len(each) for task, each in self._rewards.items() if each}
        errors = {f"grader_errors/{task}": count for task, count in self._unjudged.items()}
        self._rewards.clear()
        await super().wandb_log(
            {**(wandb_metrics or {}), **level, **(rewards if len(self.tasks) > 1 else {}), **errors}
        )

    def saved_state(self) -> str | None:
        return self._progress.to_state()

    def restore_state(self, state: str) -> None:
        self._progress.restore(state)

    async def close(self) -> None:
        if self._started is not None:
            if self._making_ahead is not None:
                self._making_ahead.cancel()
            await self._started.close()

    def _settings(self, task: str, level: int) -> TaskSettings:
        size = max(self.config.size, self.config.eval_items)  # some datasets are made as a whole
        return TaskSettings(task, {**self.fields_of(task), **self._progress.fields_at(level), "size": size})

    async def _check_settings(self) -> None:
        if self.config.difficulty_pools:
            raise ConfigError(
                "env.difficulty_pools is true: the library makes new items all the time, so none comes back for "
                "another chance; leave it false, and let env.curriculum raise the difficulty"
            )
        for task in self.tasks:
            for level in range(self._progress.last_level + 1):
                try:
                    await self._workers.check(self._settings(task, level))
                except (AssertionError, TypeError, ValueError) as error:
                    raise ConfigError(f"reasoning-gym refuses the settings of {task}: {error}") from None


class ReasoningGymTask(ReasoningGymEnvironment, ABC):
    """One task: the fields of its dataset are fields of the config."""

    task: str

    @property
    def tasks(self) -> Mapping[str, float]:
        return {self.task: 1.0}

    def fields_of(self, task: str) -> Mapping[str, object]:
        return {name: getattr(self.config, name) for name in dataset_fields(task)}

    async def setup(self) -> None:
        curriculum = self.config.curriculum
        if curriculum is not None and curriculum.field not in dataset_fields(self.task):
            known = ", ".join(dataset_fields(self.task))
            raise ConfigError(f"env.curriculum.field is {curriculum.field!r}; {self.task} has {known}")
        await super().setup()


class ReasoningGymMix(ReasoningGymEnvironment, ABC):
    """Several tasks, by weight."""

    env_config_cls = MixConfig

    @property
    def tasks(self) -> Mapping[str, float]:
        weights: dict[str, float] = self.config.tasks
        return weights

    def fields_of(self, task: str) -> Mapping[str, object]:
        fields: Mapping[str, object] = self.config.task_config.get(task, {})
        return fields

    async def setup(self) -> None:
        check_tasks(self.tasks, "env.tasks")
        check_tasks(self.config.task_config, "env.task_config")
        if not all(weight > 0 for weight in self.tasks.values()):
            raise ConfigError(f"env.tasks is {dict(self.tasks)}: every weight must be above 0")
        await super().setup()


def environment_class(name: str) -> type[ReasoningGymEnvironment]:
    """The class of `reasoning-gym/NAME`. Raises ConfigError if there is no such task."""
    forking_server()  # imports the library on another core while this process does
    if name == MIX:
        base, config_class = ReasoningGymMix, MixConfig
    else:
        check_tasks([name], "spec.environment")
        base, config_class = ReasoningGymTask, config_class_of(name)

    def config_init(_cls: type) -> tuple[TaskConfig | MixConfig, list[object]]:
        return config_class(**VALUES), []

    given = {"name": f"{FAMILY}/{name}", "task": name, "env_config_cls": config_class}
    return type(base.__name__, (base,), given | {"config_init": classmethod(config_init)})


def _formatted(answer: str) -> str:
    return f"<answer>{answer}</answer>"
