"""`harness/NAME`: the items, prompts and scorer of the environment NAME, and a program that gives the answers."""

import importlib
from pathlib import Path
from typing import Any, cast

from pydantic import create_model

from tinker_atropos.config.run_config import nearest
from tinker_atropos.environments.adapters.adapter_fields import VALUES
from tinker_atropos.environments.adapters.harness.harness_catalog import FAMILY, MIX_NAME, bundled_tasks
from tinker_atropos.environments.base import Environment
from tinker_atropos.environments.harness_environment import HarnessConfig, HarnessEnvironment
from tinker_atropos.errors import ConfigError


def environment_class(name: str) -> type[HarnessEnvironment[object]]:
    """The class of `harness/NAME`. Raises ConfigError if there is no such task."""
    task = _task_class(name)
    task_config, servers = task.config_init()
    made = create_model("TaskHarnessConfig", __base__=(HarnessConfig, type(task_config)))
    config_class = cast("type[HarnessConfig]", made)
    values = {each: getattr(task_config, each) for each in type(task_config).model_fields}

    def config_init(_cls: type) -> tuple[HarnessConfig, list[object]]:
        room = VALUES["max_token_length"]  # whatever the task says: a program has prompts of its own
        return config_class(**{**values, "max_token_length": room}), servers

    async def close(self: Any) -> None:
        await HarnessEnvironment.close(self)
        await task.close(self)

    given = {
        "__module__": __name__,
        "name": f"{FAMILY}/{name}",
        "env_config_cls": config_class,
        "config_init": classmethod(config_init),
        "score": task.score,  # HarnessEnvironment's own, which comes first, only says that there is none
        "close": close,
    }
    return type(HarnessEnvironment.__name__, (HarnessEnvironment, task), given)


def _task_class(name: str) -> type[Environment[object]]:
    if name == MIX_NAME:
        from tinker_atropos.environments.adapters.reasoning_gym import reasoning_gym_environment

        return reasoning_gym_environment.environment_class(MIX_NAME.partition("/")[2])
    found = {each.name: each for each in bundled_tasks()}
    if name not in found:
        raise ConfigError(f"there is no environment '{FAMILY}/{name}'{nearest(name, found)}")
    module = ".".join(["tinker_atropos", *Path(found[name].file_path).with_suffix("").parts])
    task: type[Environment[object]] = getattr(importlib.import_module(module), found[name].class_name)
    return task
