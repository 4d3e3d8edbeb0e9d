"""Fill an image's virtual environment: with locked requirements, or with packages of this repository.

usage: install.py requirements VENV FILE...    wheels only (but for BUILT), each checked against the hashes in the files
       install.py packages VENV ROOT FOLDER... the packages in these folders, as if ROOT were /: a layer of their own

Run by the base image's Python, for the virtual environment has no pip. Bytecode is compiled here, because the root
file system is read-only at run time, and it is trusted without a look at the source, which cannot change either.
"""

import compileall
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from py_compile import PycInvalidationMode

# Libraries of reasoning-gym and TextArena that come as source only: pure Python, built with what images/build.txt pins.
BUILT = "cellpylib,chess,zss"
# Folders in site-packages that nothing imports at run time: tests of libraries, C headers, sources of compiled code.
DROPPED = ("**/tests", "joblib/test", "nltk/test", "pyarrow/include", "pyarrow/src", "torch/include")
# Compiled one by one, only if imported: model architectures, which need torch, and the Kubernetes kinds.
NOT_COMPILED = re.compile(
    r"/transformers/models/.*/(convert|image_processing|modeling|modular|processing|video)_"
    r"|/kubernetes/.*/(api|models)/(?!__init__)"
)
LIBRARY = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def pip_install(venv: Path, *arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", f"{venv}/bin/python", "install"]
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-compile", "--no-deps"]
    subprocess.run([*pip, *options, *arguments], check=True)  # noqa: S603 -- this interpreter's own pip


def droppable(library: Path) -> Iterator[Path]:
    """The folders that match DROPPED, without those inside another."""
    found = {path for pattern in DROPPED for path in library.glob(pattern) if path.is_dir()}
    return (path for path in sorted(found) if found.isdisjoint(path.parents))


def compile_bytecode(library: Path, root: Path) -> None:
    """Compile; tracebacks name files without `root`, as in the image."""
    mode = PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(
        library, quiet=2, workers=0, rx=NOT_COMPILED, stripdir=root, prependdir="/", invalidation_mode=mode
    )


def install_requirements(venv: Path, files: list[str]) -> None:
    """What builds BUILT is on PYTHONPATH, and must not be taken for installed: hence --ignore-installed."""
    named = [argument for file in files for argument in ("--requirement", file)]
    sources = (f"--no-binary={BUILT}", "--no-build-isolation", "--ignore-installed")
    pip_install(venv, "--require-hashes", "--only-binary=:all:", *sources, *named)
    for folder in list(droppable(venv / LIBRARY)):
        shutil.rmtree(folder)
    compile_bytecode(venv / LIBRARY, Path("/"))


def install_packages(venv: Path, root: Path, folders: list[str]) -> None:
    pip_install(venv, "--no-build-isolation", f"--root={root}", *folders)
    compile_bytecode(root / venv.relative_to("/") / LIBRARY, root)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["requirements", venv, *files]:
            install_requirements(Path(venv), files)
        case ["packages", venv, root, *folders]:
            install_packages(Path(venv), Path(root), folders)
        case _:
            sys.exit(__doc__)
