"""Files of a sandbox. Anything but a plain file is refused: reading a pipe would never end."""

import os
import stat
import subprocess
from typing import BinaryIO


class SandboxRequestError(Exception):
    """What was asked cannot be done; the message says why."""


def read_file(folder: str, path: str, max_bytes: int) -> bytes:
    """From anywhere: what a command may read. Raises SandboxRequestError, OSError."""
    with opened(os.path.join(folder, path), os.O_RDONLY) as file:
        content: bytes = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise SandboxRequestError(f"{path} has more than {max_bytes} bytes")
    return content


def write_file(folder: str, path: str, content: bytes) -> None:
    """Only in the folder, wherever links lead. Raises SandboxRequestError, OSError."""
    whole, root = os.path.realpath(os.path.join(folder, path)), os.path.realpath(folder)
    if os.path.commonpath([whole, root]) != root:
        raise SandboxRequestError(f"{path} is outside of {folder}, where nothing can be written")
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    with opened(whole, os.O_WRONLY | os.O_CREAT) as file:
        file.truncate()
        file.write(content)


def opened(path: str, flags: int) -> BinaryIO:
    """Raises SandboxRequestError for anything but a plain file, without waiting for anybody."""
    number = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise SandboxRequestError(f"{path} is not a plain file")
    return os.fdopen(number, "rb" if flags == os.O_RDONLY else "wb")


def remove_folder(folder: str) -> None:
    """Whatever is in it: folders that nobody may open, and more levels than Python could descend. Never raises."""
    remove = ["rm", "-rf", "--", folder]
    for program in ([], remove, ["chmod", "-R", "u+rwx", "--", folder], remove):
        try:
            if program:
                subprocess.run(program, stderr=subprocess.DEVNULL, check=False)
            os.rmdir(folder)  # empty it is in most cases: its files were on a file system that is gone
        except FileNotFoundError:
            return
        except OSError:
            continue
        else:
            return
