"""From a run's config to verifiers' environment and its tasks. Imports the taskset, so it is called in a thread."""

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from tinker_atropos.config.run_config import nearest
from tinker_atropos.environments.adapters.verifiers.agent_seats import seated
from tinker_atropos.environments.adapters.verifiers.taskset_sources import TasksetName, taskset_folders, taskset_sources
from tinker_atropos.environments.adapters.verifiers.verifiers_config import VerifiersConfig
from tinker_atropos.environments.adapters.verifiers.verifiers_package import load_taskset, taskset_config_type, vf
from tinker_atropos.environments.rollout.failures import missing_data
from tinker_atropos.errors import ConfigError

ENDLESS_ITEMS: Final = 1000
"""Tasks to train on that are taken of a taskset without an end, if `train_items` does not say."""

LARGEST_SHARE: Final = 5
"""At most one of so many different tasks is held out, if they are the taskset's own first ones."""

NAMES: Final = frozenset({"idx", "id", "name"})
"""Data of a task that says which one it is, and not what is asked."""


@dataclass(frozen=True, slots=True)
class LoadedTaskset:
    """`env` is verifiers' environment. No task to train on is equal to one that is held out."""

    env: Any
    training: Sequence[Any]
    held_out: Sequence[Any]


def load_tasks(name: TasksetName, config: VerifiersConfig, held_out: int) -> LoadedTaskset:
    """With at most `held_out` tasks to evaluate on. Raises ConfigError naming the field, or saying what is missing."""
    sys.path[:0] = [str(each) for each in taskset_folders() if str(each) not in sys.path]
    check_version(name)
    try:
        env = _environment(name, config)
        return _split(env, name, config, held_out)
    except ConfigError:
        raise
    except Exception as error:
        if sentence := missing_data(f"verifiers/{name.module}", error):
            raise ConfigError(sentence) from error
        raise


def check_version(name: TasksetName) -> None:
    """Raises ConfigError if another version is installed than the name asks for."""
    source = taskset_sources().get(name.module)
    version = source.version if source else None
    if name.version is not None and version != name.version:
        there = f"{version} is installed" if version else "it is a file without a version"
        raise ConfigError(
            f"spec.environment asks for version {name.version} of verifiers/{name.module}, and {there}: install that "
            f"version where the environment runs, or leave @{name.version} out"
        )


def _environment(name: TasksetName, config: VerifiersConfig) -> object:
    taskset = {**config.taskset, "id": name.module}
    try:
        config_class = vf.env_config_type(name.module, config.env_id)
    except ModuleNotFoundError as error:
        if config.env_id:
            raise ConfigError(f"env.env_id is {config.env_id!r}: {error}") from None
        raise ConfigError(f"verifiers/{name.module} cannot be imported: {error}") from error
    _validated(taskset_config_type(name.module), taskset, "env.taskset")
    own = {
        "id": config.env_id,
        "taskset": taskset,
        "max_concurrent_agents": None,
        "timeout": {"episode": config.timeout_seconds, "finalize": config.timeout_seconds},
    }
    seats = seated(config_class, name.module, config)
    resolved = _validated(config_class, {**config.env_config, **seats, **own}, "env.env_config")
    return vf.load_environment(resolved)


def _validated(config_class: Any, values: Mapping[str, Any], section: str) -> Any:
    try:
        return config_class.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        location = [str(part) for part in first["loc"]]
        field = ".".join([section, *location])
        if first["type"] == "extra_forbidden":
            known = [each for each in config_class.model_fields if each not in ("id", "taskset")]
            hint = nearest(location[-1], known) if len(location) == 1 else ""
            there = f" (known: {', '.join(known)})" if len(location) == 1 else ""
            raise ConfigError(f"{field} is not a field of this taskset{hint}{there}") from None
        if first["type"] == "missing":
            raise ConfigError(f"{field} is missing{_allowed(config_class, location)}") from None
        raise ConfigError(f"{field} is {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}") from None


def _allowed(config_class: Any, location: Sequence[str]) -> str:
    """What a missing field may be, as its schema says it."""
    schema = config_class.model_json_schema().get("properties", {}).get(location[0], {}) if len(location) == 1 else {}
    if "enum" in schema:
        return f"; set it to one of {', '.join(map(str, schema['enum']))}"
    return f"; it takes a value of type {schema['type']}" if "type" in schema else ""


def _split(env: Any, name: TasksetName, config: VerifiersConfig, count: int) -> LoadedTaskset:
    endless = not env.taskset.bounded
    most = config.train_items or (ENDLESS_ITEMS if endless else None)
    tasks = list(itertools.islice(env.taskset, None if most is None else most + count))
    prints = [fingerprint(task) for task in tasks]
    if config.held_out_taskset:
        values = {**config.taskset, **config.held_out_taskset, "id": name.module}
        other = load_taskset(_validated(taskset_config_type(name.module), values, "env.held_out_taskset"))
        held_out = list(itertools.islice(other, count))
        withheld = {fingerprint(task) for task in held_out}
    else:
        first = dict(reversed(list(zip(prints, tasks, strict=True))))  # of equal ones the first
        different = list(dict.fromkeys(prints))
        withheld = set(different[: min(count, max(1, len(different) // LARGEST_SHARE))])
        held_out = [first[each] for each in different if each in withheld]
    training = [task for task, print_ in zip(tasks, prints, strict=True) if print_ not in withheld][:most]
    if not training or not held_out:
        raise ConfigError(
            f"verifiers/{name.module} has {len(set(prints))} different tasks, of which {len(withheld)} are held out: "
            f"none is left to {'train' if not training else 'evaluate'} on; set env.held_out_taskset to fields that "
            f"make other tasks, or make more of them with env.taskset"
        )
    return LoadedTaskset(env, training, held_out)


def fingerprint(task: Any) -> str:
    """Two tasks with the same one are the same to the policy, and to its grader."""
    return json.dumps(task.data.model_dump(mode="json", exclude=NAMES, exclude_none=True), sort_keys=True)
