"""Which libraries have adapters, as a table: a name like `reasoning-gym/chain_sum` begins with its family's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tinker_atropos.environments.adapters.harness import harness_catalog
from tinker_atropos.environments.adapters.reasoning_gym import task_catalog
from tinker_atropos.environments.adapters.verifiers import taskset_catalog
from tinker_atropos.environments.discovery import Discovery


@dataclass(frozen=True, slots=True)
class Family:
    """`module` has a function `environment_class(name)`, and imports the library; `discover` only reads its source.
    `listed_name` gives the name under which the catalog lists an environment.
    """

    module: str
    discover: Callable[[], Discovery]
    listed_name: Callable[[str], str] = str


FAMILIES: Final[Mapping[str, Family]] = {
    task_catalog.FAMILY: Family(f"{task_catalog.__package__}.reasoning_gym_environment", task_catalog.discover_tasks),
    taskset_catalog.FAMILY: Family(
        f"{taskset_catalog.__package__}.verifiers_environment",
        taskset_catalog.discover_tasksets,
        taskset_catalog.canonical_name,
    ),
    harness_catalog.FAMILY: Family(f"{harness_catalog.__package__}.task_harness", harness_catalog.discover_harnesses),
}


def family_of(environment: str) -> Family | None:
    name, slash, _ = environment.partition("/")
    return FAMILIES.get(name) if slash else None
