"""What `tinker-atropos environments` shows."""

import json
from pathlib import Path

from tinker_atropos.environments.discovery.discover import Discovery, discover, discover_bundled, discover_entry


def look(folder: Path | None, entry: str | None) -> Discovery:
    """The bundled environments, those of a folder, or the one of a file in it. Raises ValueError for a wrong option."""
    if folder is None:
        if entry is not None:
            raise ValueError("--entry names a file of --path: give both")
        return discover_bundled()
    if not folder.is_dir():
        raise ValueError(f"--path {folder} is not a folder")
    return discover(folder) if entry is None else discover_entry(folder, entry)


def as_json(found: Discovery) -> bytes:
    """UTF-8, whatever the terminal speaks; what a broken file name or an odd encoding left of a text becomes `?`."""
    return json.dumps(found.to_wire(), indent=2, ensure_ascii=False).encode("utf-8", "replace")


def as_table(found: Discovery) -> str:
    width = max([len(each.name) for each in found.environments], default=0)
    lines = (f"{each.name:<{width}}  {each.description} ({each.file_path})\n" for each in found.environments)
    return "".join(lines)
