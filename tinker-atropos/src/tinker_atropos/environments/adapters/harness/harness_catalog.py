"""The environments `harness/NAME` for the catalog: all that score one answer, with a harness' fields and their own.

Of reasoning-gym there is the mixture, which plays any of its tasks: one entry, and not a hundred more.
"""

from collections.abc import Iterator
from typing import Final

from tinker_atropos.environments.adapters.adapter_fields import our_fields
from tinker_atropos.environments.adapters.reasoning_gym import task_catalog
from tinker_atropos.environments.adapters.reasoning_gym.task_catalog import is_installed
from tinker_atropos.environments.discovery import BUNDLED_FOLDER, Discovery, discover_bundled
from tinker_atropos.environments.discovery.config_fields import ConfigField
from tinker_atropos.environments.discovery.discovered_folder import DiscoveredEnvironment, DiscoveredFamily
from tinker_atropos.environments.discovery.modules import SourceClass
from tinker_atropos.environments.discovery.sources import Sources

FAMILY: Final = "harness"
MIX_NAME: Final = f"{task_catalog.FAMILY}/{task_catalog.MIX}"

CONFIG_FILE: Final = "harness_environment.py"
ENVIRONMENT_FILE: Final = "environments/adapters/harness/task_harness.py"
ENVIRONMENT_CLASS: Final = "HarnessEnvironment"
SINGLE_ANSWER: Final = ("base.py", "Environment")
SCORES_ITSELF: Final = ("session_environment.py", "SessionEnvironment")
"""Its subclasses are played by programs already."""


def discover_harnesses() -> Discovery:
    shared = our_fields(CONFIG_FILE, "HarnessConfig")
    described = "A program of yours works on a task in the policy's place: config.command says which."
    environments = [_harness(each, shared) for each in (*bundled_tasks(), *_library_tasks())]
    return Discovery(environments, families=[DiscoveredFamily(FAMILY, described, shared)])


def bundled_tasks() -> list[DiscoveredEnvironment]:
    """The bundled environments whose answers a program can give."""
    sources = Sources(BUNDLED_FOLDER)
    return [each for each in discover_bundled().environments if _has_one_answer(sources, each)]


def _has_one_answer(sources: Sources, environment: DiscoveredEnvironment) -> bool:
    module = sources.module_of_file(environment.file_path.partition("/")[2])
    if module is None:
        return False
    ancestry = sources.readable_ancestry(SourceClass(module, module.classes[environment.class_name]))
    classes = {(each.module.name.rpartition(".")[2] + ".py", each.name) for each in ancestry}
    return SINGLE_ANSWER in classes and SCORES_ITSELF not in classes


def _library_tasks() -> Iterator[DiscoveredEnvironment]:
    if is_installed():
        fields = our_fields(task_catalog.CONFIG_FILE, "MixConfig")
        described = "Tasks of reasoning-gym; of one alone: tasks: {chain_sum: 1}."
        yield DiscoveredEnvironment(MIX_NAME, "ReasoningGymMix", task_catalog.ENVIRONMENT_FILE, described, fields)


def _harness(task: DiscoveredEnvironment, shared: list[ConfigField]) -> DiscoveredEnvironment:
    """With the fields in which it differs from other harnesses."""
    fields = [each for each in task.fields if each.name != "max_token_length" and each not in shared]
    return DiscoveredEnvironment(
        f"{FAMILY}/{task.name}", ENVIRONMENT_CLASS, ENVIRONMENT_FILE, task.description, fields, FAMILY
    )
