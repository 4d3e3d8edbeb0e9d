"""What `tinker-atropos environments` shows: the bundled environments and those of other libraries, or a folder's."""

import json
from dataclasses import replace
from pathlib import Path

from tinker_atropos.environments.adapters.families import FAMILIES
from tinker_atropos.environments.discovery import Discovery, discover, discover_bundled, discover_entry


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
