"""Packages that pip and uv install without an index: each brings its own build backend, which needs nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

BACKEND = '''
"""A wheel is a zip file with a few texts: https://packaging.python.org/specifications/binary-distribution-format."""

import pathlib
import tomllib
import zipfile

HERE = pathlib.Path(__file__).parent


def _write(folder, contents):
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in project.get("dependencies", [])]
    lines += [f"Provides-Extra: {extra}" for extra in project.get("optional-dependencies", {})]
    scripts = "".join(f"{name} = {where}\\n" for name, where in project.get("scripts", {}).items())
    info = f"{name}-{version}.dist-info"
    contents |= {
        f"{info}/METADATA": "\\n".join(lines) + "\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: tiny\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/entry_points.txt": f"[console_scripts]\\n{scripts}",
    }
    contents[f"{info}/RECORD"] = "".join(f"{path},,\\n" for path in [*contents, f"{info}/RECORD"])
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, wheel), "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return wheel


def build_wheel(folder, config_settings=None, metadata_directory=None):
    code = [each for each in HERE.iterdir() if each.suffix in (".py", ".pth") and each.name != "backend.py"]
    return _write(folder, {each.name: each.read_text() for each in code})


def build_editable(folder, config_settings=None, metadata_directory=None):
    return _write(folder, {f"_{HERE.name}.pth": str(HERE)})
'''


def make_package(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    *,
    version: str = "1.0",
    extras: Sequence[str] = (),
    scripts: Mapping[str, str] | None = None,
    backend: str = BACKEND,
) -> Path:
    """`files`: its modules and .pth files, which are installed at the top."""
    folder.mkdir(parents=True, exist_ok=True)
    optional = "".join(f"{extra} = []\n" for extra in extras)
    called = "".join(f'{script} = "{where}"\n' for script, where in (scripts or {}).items())
    (folder / "pyproject.toml").write_text(
        f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\n'
        f"[project.optional-dependencies]\n{optional}[project.scripts]\n{called}"
    )
    (folder / "backend.py").write_text(backend)
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder
