"""`reasoning-gym/NAME`: one of the library's tasks, and `reasoning-gym/mix`: several, by weight.

System prompt, answer format and grader are the library's. Held-out items are those of another seed.
"""

import logging
import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from tinker_atropos.environments.adapters.reasoning_gym.reasoning_gym_config import (
    HELD_OUT_SEED,
    CurriculumProgress,
    MixConfig,
    TaskConfig,
    check_tasks,
    config_class_of,
    dataset_fields,
)
from tinker_atropos.environments.adapters.reasoning_gym.task_catalog import FAMILY, MIX, VALUES
from tinker_atropos.environments.adapters.reasoning_gym.task_worker import (
    ItemChoice,
    ItemStream,
    TaskItem,
    TaskSettings,
    TaskWorkers,
    forking_server,
    held_out,
)
from tinker_atropos.environments.base import Environment, Message
from tinker_atropos.environments.items.grader_check import ITEMS
from tinker_atropos.environments.items.held_out import MOST_SETS, HeldOutSets
from tinker_atropos.errors import ConfigError

logger = logging.getLogger(__name__)


class ReasoningGymEnvironment(Environment[TaskItem], ABC):
    """What a task and a mixture share. `tasks` gives each one's weight."""

    _started: TaskWorkers | None = None
    """None until `setup`, which may refuse the settings before anything is started."""

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
        self._choice = random.Random(config.item_seed)  # noqa: S311 -- an order
        self._progress = CurriculumProgress(getattr(config, "curriculum", None))
        self._started = TaskWorkers(config.scoring_seconds)
        self._streams: dict[str, ItemStream] = {}
        await self._check_settings()
        wanted = config.eval_items if config.steps_per_eval > 0 else ITEMS  # the grader is checked on some in any case
        share = -(-wanted // len(self.tasks))
        seed = config.seed + HELD_OUT_SEED
        of_tasks = [await held_out(self._workers, self._goal(task), seed, share) for task in self.tasks]
        self._held_out = [item for items in zip_longest(*of_tasks) for item in items if item is not None]
        self._begin_streams()

    @property
    def _workers(self) -> TaskWorkers:
        assert self._started is not None, "setup comes first"
        return self._started

    async def get_next_item(self) -> TaskItem:
        [task] = self._choice.choices(list(self.tasks), list(self.tasks.values()))
        while (item := await self._streams[task].next()) is None:
            logger.debug("the items of the next level follow")
        return item

    def training_items(self) -> Sequence[TaskItem]:
        """Those that were made so far, at the present level."""
        return [item for stream in self._streams.values() for item in stream.known]

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
            self._begin_streams()

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
        self._begin_streams()

    async def close(self) -> None:
        if self._started is not None:
            self._end_streams()
            await self._started.close()

    def _begin_streams(self) -> None:
        """At the present level."""
        self._end_streams()
        config, level = self.config, self._progress.level
        for task in self.tasks:
            choice = ItemChoice(config.seed, config.size, f"{config.item_seed} {task} {level}", level)
            stream = ItemStream(self._workers, self._settings(task, level), choice)
            stream.begin(frozenset(item.question for item in self._held_out))
            self._streams[task] = stream

    def _end_streams(self) -> None:
        for stream in self._streams.values():
            stream.end()

    def _settings(self, task: str, level: int) -> TaskSettings:
        size = max(self.config.size, self.config.eval_items)  # some datasets are made as a whole
        return TaskSettings(task, {**self.fields_of(task), **self._progress.fields_at(level), "size": size})

    def _goal(self, task: str) -> TaskSettings:
        return self._settings(task, self._progress.last_level)

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
