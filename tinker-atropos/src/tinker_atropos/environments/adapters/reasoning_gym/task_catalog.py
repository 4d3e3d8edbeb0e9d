"""The environments `reasoning-gym/…` for the catalog: the library's tasks with our fields, read from source."""

from dataclasses import replace
from typing import Any, Final

from tinker_atropos.environments.adapters.reasoning_gym.task_source import task_sources
from tinker_atropos.environments.discovery import BUNDLED_FOLDER, Discovery
from tinker_atropos.environments.discovery.config_fields import ConfigField, fields_of
from tinker_atropos.environments.discovery.discover import DiscoveredEnvironment, DiscoveredFamily
from tinker_atropos.environments.discovery.modules import SourceClass
from tinker_atropos.environments.discovery.sources import Sources

FAMILY: Final = "reasoning-gym"
MIX: Final = "mix"

VALUES: Final[dict[str, Any]] = {
    "tokenizer_name": "bundled",
    "group_size": 8,
    "batch_size": 64,
    "total_steps": 100,
    "max_token_length": 2048,
}
"""What differs from the defaults of the config classes."""

CONFIG_FILE: Final = "adapters/reasoning_gym/reasoning_gym_config.py"
ENVIRONMENT_FILE: Final = "environments/adapters/reasoning_gym/reasoning_gym_environment.py"


def discover_tasks() -> Discovery:
    """Empty if the library is not installed."""
    tasks = task_sources().values()
    if not tasks:
        return Discovery()
    environments = [
        DiscoveredEnvironment(
            f"{FAMILY}/{task.name}", "ReasoningGymTask", ENVIRONMENT_FILE, task.description, list(task.fields), FAMILY
        )
        for task in tasks
    ]
    described = f"{len(tasks)} procedural tasks with graders, by Open-Thought."
    mix = DiscoveredEnvironment(
        f"{FAMILY}/{MIX}",
        "ReasoningGymMix",
        ENVIRONMENT_FILE,
        "Several tasks of reasoning-gym, by weight.",
        _fields("MixConfig"),
    )
    return Discovery([*environments, mix], families=[DiscoveredFamily(FAMILY, described, _fields("TaskConfig"))])


def _fields(config_class: str) -> list[ConfigField]:
    sources = Sources(BUNDLED_FOLDER)
    module = sources.module_of_file(CONFIG_FILE)
    assert module is not None, "our own file can be read"
    found = fields_of(sources, SourceClass(module, module.classes[config_class]))
    return [_with_our_value(each) for each in found.values()]


def _with_our_value(field: ConfigField) -> ConfigField:
    return replace(field, default=VALUES[field.name]) if field.name in VALUES else field
