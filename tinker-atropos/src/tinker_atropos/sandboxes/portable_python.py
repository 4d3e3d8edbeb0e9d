"""A folder with this Python and the tool server, for images that have neither: all they need is /bin/sh.

usage: python -m tinker_atropos.sandboxes.portable_python FOLDER    on Linux; FOLDER is new or empty

The folder works wherever it is mounted, and read-only. Its programs bring their own loader and libraries, and set no
variable for that: what they start goes on with the image's.
"""

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

PLACE: Final = "/rl-tools"
"""Where it is usually mounted: tracebacks name its files there."""

PACKAGE: Final = Path(__file__).parents[1]
SERVER: Final = "sandboxes/sandbox_server"
LOADED_OBJECTS: Final = PACKAGE / "sandboxes/loaded_objects.py"

DROPPED: Final = shutil.ignore_patterns(
    "__pycache__", "site-packages", "dist-packages", "lib-dynload", "config-*", "test", "tests",
    "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtle.py", "turtledemo",
)  # fmt: skip
"""Of the standard library. Extension modules are copied one by one."""

# Python would not follow a link to `bin`, so the folder is found here; a virtual environment's goes by its own path.
# What the image wants to be preloaded is made for another libc.
LAUNCHER: Final = """#!/bin/sh
case $0 in */*) file=$0 ;; *) file=./$0 ;; esac
self=
[ ! -f "${file%/*}/../pyvenv.cfg" ] || self=$file
while [ -h "$file" ]; do
  target=$(readlink "$file") || exit
  case $target in /*) file=$target ;; *) file=${file%/*}/$target ;; esac
done
bin=$(CDPATH= cd -P -- "${file%/*}/" && pwd -P) || exit
[ -n "$self" ] || self=$bin/python3
unset LD_PRELOAD
exec "$bin/../lib/LOADER" --library-path "$bin/../lib" --argv0 "$self" "$bin/../libexec/python3" OPTIONS "$@"
"""
SERVE: Final = " -I -S -B -c 'from tinker_atropos.sandboxes.sandbox_server.pod_server import main; main()'"

CHECK: Final = """import sys
for name in sys.argv[1:]:
    __import__(name)
for line in open("/proc/self/maps"):
    _, mode, _, _, _, *path = line.split(maxsplit=5)
    if "x" in mode:
        print(*path, end="")
"""
"""Code only: glibc maps locales and tables of the image, too, if it has any."""


class NotPortableError(Exception):
    """The message says why no portable Python can be made here."""


def write_portable_python(folder: Path) -> None:
    """Raises NotPortableError, OSError."""
    if sys.platform != "linux":
        raise NotPortableError("a portable Python is for Linux, and can only be made there")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise NotPortableError(f"{folder} is not an empty folder")
    program, loader, *loaded = map(Path, _output([sys.executable, "-I", "-S", LOADED_OBJECTS]))
    modules = folder / sys.platlibdir / f"python{sys.version_info.major}.{sys.version_info.minor}"
    _copy_modules(modules, folder)
    _copy(program, folder / "libexec/python3")
    for file in (loader, *loaded):
        _copy(file, (modules / "lib-dynload" if file.parent.name == "lib-dynload" else folder / "lib") / file.name)
    _write_launcher(folder / "bin/python3", loader.name, "")
    _write_launcher(folder / "bin/sandbox-server", loader.name, SERVE)
    _check(folder, modules)
    for path in (folder, *folder.rglob("*")):  # the same files make the same layer of an image
        os.utime(path, (0, 0))


def _copy_modules(modules: Path, folder: Path) -> None:
    """The standard library and the server, as bytecode alone: half the files to copy, and a quicker start."""
    shutil.copytree(Path(os.__file__).parent, modules, ignore=DROPPED)
    (modules / "lib-dynload").mkdir()  # Python looks for it even if it is empty
    ours = modules / PACKAGE.name
    shutil.copytree(PACKAGE / SERVER, ours / SERVER, ignore=DROPPED)
    for parent in ("__init__.py", "sandboxes/__init__.py"):
        shutil.copy(PACKAGE / parent, ours / parent)
    mode = PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(
        modules, quiet=1, legacy=True, workers=0, stripdir=folder, prependdir=PLACE, invalidation_mode=mode
    ):
        raise NotPortableError(f"a module of {Path(os.__file__).parent} cannot be compiled")
    for source in modules.rglob("*.py"):
        source.unlink()


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, target)


def _write_launcher(path: Path, loader: str, options: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(LAUNCHER.replace("LOADER", loader).replace(" OPTIONS", options), encoding="utf-8")
    path.chmod(0o755)


def _check(folder: Path, modules: Path) -> None:
    """Checks that it can load all it has, and no code from elsewhere, where it would be found here but not in an
    image.
    """
    extensions = [path.name.partition(".")[0] for path in modules.glob("lib-dynload/*")]
    server = [".".join(path.relative_to(modules).with_suffix("").parts) for path in modules.rglob(f"{SERVER}/*.pyc")]
    mapped = _output([folder / "bin/python3", "-I", "-S", "-B", "-c", CHECK, *extensions, *server])
    if foreign := sorted({path for path in mapped if not path.startswith(("[", f"{folder.resolve()}/"))}):
        raise NotPortableError(f"the portable Python still loads {', '.join(foreign)}")


def _output(command: list[str | Path]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={})  # noqa: S603  # our own programs
    if done.returncode:
        raise NotPortableError(done.stderr.strip())
    return done.stdout.splitlines()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [argument] if not argument.startswith("-"):
            try:
                write_portable_python(Path(argument))
            except NotPortableError as error:
                sys.exit(str(error))
        case _:
            sys.exit(__doc__)
