"""Which libraries have adapters, as a table: a name like `reasoning-gym/chain_sum` begins with its family's. And what
`tinker-atropos environments` shows: the bundled environments and those of the libraries, or a folder's.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tinker_atropos.environments.adapters.harness import harness_catalog
from tinker_atropos.environments.adapters.reasoning_gym import task_catalog
from tinker_atropos.environments.adapters.verifiers import taskset_catalog
from tinker_atropos.environments.discovery import Discovery, discover, discover_bundled, discover_entry


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


def look(folder: Path | None, entry: str | None) -> Discovery:
    """What is installed here, what a folder has, or the one of a file in it. Raises ValueError for a wrong option."""
    if folder is None:
        if entry is not None:
            raise ValueError("--entry names a file of --path: give both")
        return installed_environments()
    if not folder.is_dir():
        raise ValueError(f"--path {folder} is not a folder")
    return discover(folder) if entry is None else discover_entry(folder, entry)


def installed_environments() -> Discovery:
    bundled = discover_bundled()
    found = [family.discover() for family in FAMILIES.values()]
    environments = [*bundled.environments, *(each for family in found for each in family.environments)]
    families = [each for family in found for each in family.families]
    return replace(bundled, environments=environments, families=families)


def as_json(found: Discovery) -> bytes:
    """UTF-8, whatever the terminal's encoding; undecodable characters of a file name or a text become `?`."""
    return json.dumps(found.to_wire(), indent=2, ensure_ascii=False).encode("utf-8", "replace")


def as_table(found: Discovery) -> str:
    width = max([len(each.name) for each in found.environments], default=0)
    lines = (f"{each.name:<{width}}  {each.description} ({each.file_path})\n" for each in found.environments)
    return "".join(lines)
