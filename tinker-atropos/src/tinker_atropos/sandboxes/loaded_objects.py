"""What a Python needs of its machine. As a program it prints, by line, the paths of its interpreter and its loader, and
of all that these load together with all extension modules.

It is a program of its own, and imports little, because all that is loaded counts. A path ends in the name by which the
loader looks for the file.
"""

import ctypes
import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

DROPPED: Final = re.compile("_ssl|_hashlib|_tkinter|_curses|readline|_dbm|_gdbm|nis|ossaudiodev|_?xx|_.*test")
"""OpenSSL is large, and nobody would patch it there; hashlib works without it. The others are tests, or are of use only
with a terminal, a display, or services that hardly anyone runs.
"""

OPENED_LATE: Final = "libgcc_s.so.1"
"""By glibc itself, when a thread ends after the interpreter. Without it, that is an abort."""

AT_BASE: Final = 7
"""Of getauxval(3): where the kernel has put the loader."""


class LoadedObject(ctypes.Structure):
    """The beginning of what dl_iterate_phdr(3) shows."""

    _fields_ = (("address", ctypes.c_size_t), ("path", ctypes.c_char_p))


def load_all(folder: Path) -> None:
    """All extension modules in it that can be loaded here: whose libraries are missing would miss them there, too."""
    names = sorted({path.name.partition(".")[0] for path in folder.glob("*.so")})
    sys.modules.update({name: None for name in names if DROPPED.match(name)})  # type: ignore[misc]  # no imports
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    try:
        ctypes.CDLL(OPENED_LATE)
    except OSError:  # another libc, which needs none
        return


def loaded_objects() -> tuple[str | None, list[str]]:
    """The loader, None if the kernel has loaded none, and the others."""
    libc, found = ctypes.CDLL(None), dict[int, str]()
    libc.getauxval.argtypes, libc.getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong

    def note(loaded: Any, _size: int, _nothing: None) -> int:
        if b"/" in loaded[0].path:  # neither the interpreter nor the kernel's own
            found[loaded[0].address] = os.fsdecode(loaded[0].path)
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(LoadedObject), ctypes.c_size_t, ctypes.c_void_p)
    libc.dl_iterate_phdr(callback(note), None)
    return found.pop(libc.getauxval(AT_BASE), None), list(found.values())


def main() -> None:
    load_all(Path(os.__file__).with_name("lib-dynload"))
    loader, others = loaded_objects()
    if loader is None:
        sys.exit("this Python is linked statically, or is a portable one: it has no loader that could be copied")
    print(Path("/proc/self/exe").readlink(), loader, *others, sep="\n")  # noqa: T201  # that is its answer


if __name__ == "__main__":
    main()
