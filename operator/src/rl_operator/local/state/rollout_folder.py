"""The folder in which the attempts of a local run keep their rollouts."""

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rl_operator.operator_errors import GoneError, TargetUnreachableError
from rl_operator.rollouts.rollout_source import RolloutFile, RolloutListing

ENDING: Final = ".jsonl.zst"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class RolloutFolder:
    """Implements `rollout_source.RolloutSource`. A missing folder has no files yet."""

    path: Path
    where: str = "the run's folder"

    def listing(self) -> RolloutListing:
        try:
            found = tuple(file for path in sorted(self.path.glob(f"*{ENDING}")) if (file := _regular(path)))
        except OSError as error:
            raise TargetUnreachableError(f"the folder of rollouts {self.path} cannot be read: {error}") from error
        return RolloutListing(found)

    def content(self, name: str, begin: int = 0) -> bytes:
        if not _PLAIN_NAME.fullmatch(name):  # no way out of the folder
            raise GoneError(f"there is no rollout file {name!r} in {self.where}")
        try:
            with (self.path / name).open("rb") as file:
                file.seek(begin)
                return file.read()
        except FileNotFoundError as error:
            raise GoneError(f"there is no rollout file {name!r} in {self.where} any more") from error
        except OSError as error:
            raise TargetUnreachableError(f"the rollout file {self.path / name} cannot be read: {error}") from error


def _regular(path: Path) -> RolloutFile | None:
    """None: what no trainer writes, such as a link or a pipe, and a file that the trainer has just thinned out."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return RolloutFile(path.name, found.st_size) if stat.S_ISREG(found.st_mode) else None
