"""Which of the nightly tests run: those that are marked `nightly(folder, ...)`, with the product's folders they hold.

`RL_NIGHTLY=tenth`, as CI sets it, keeps the tenth that the commit chooses (`RL_SEED`, tests/seeds.py) and whatever
holds a folder that changed since `RL_BASE` (a commit; unset, HEAD: what is not committed). A test is always in the same
tenth. Everything else that was selected runs anyway, and without the variable so do all nightly tests.
"""

import os
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import pytest
from _pytest.terminal import TerminalReporter
from tests import seeds

ROOT = Path(__file__).parents[2]
PARTS = 10


def part_of(nodeid: str) -> int:
    """1 to 10."""
    return zlib.crc32(nodeid.encode()) % PARTS + 1


def part_of_commit() -> int:
    return seeds.seed_of_commit() % PARTS + 1


@cache
def changed_files(base: str, root: Path = ROOT) -> frozenset[PurePosixPath] | None:
    """Since that commit, the working tree included. None where git does not know it, as in a shallow clone."""
    command = ["git", "diff", "--name-only", "--no-renames", base, "--"]
    try:
        asked = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return frozenset(map(PurePosixPath, asked.stdout.splitlines())) if asked.returncode == 0 else None


def is_held(folders: Sequence[str], file: PurePosixPath, changed: frozenset[PurePosixPath]) -> bool:
    """Whether one of the folders changed, or the test's own file."""
    return file in changed or any(path.is_relative_to(folder) for path in changed for folder in folders)


@dataclass(frozen=True)
class Chosen:
    """What a test run says of its nightly tests."""

    ran: int
    of: int
    part: int
    base: str
    held: Sequence[str] | None
    """Files of those that run because of a change; None if the changes are not known."""

    def __str__(self) -> str:
        because = f"what changed since {self.base} (RL_BASE)"
        more = f"git does not know {because}" if self.held is None else f"all that hold {because}"
        named = f": {', '.join(self.held)}" if self.held else ""
        seed = f"RL_SEED={seeds.seed_text()}"
        return f"part {self.part} of {PARTS} ({seed}), {more}{named}: {self.ran} of {self.of} nightly tests"


CHOSEN = pytest.StashKey[str]()


@pytest.hookimpl(trylast=True)  # after `-m` has selected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if os.environ.get("RL_NIGHTLY") != "tenth" or not nightly:
        return
    part, base = part_of_commit(), os.environ.get("RL_BASE") or "HEAD"
    changed = changed_files(base)
    held = [item for item in nightly if is_held(_folders(item), _file(item), changed or frozenset())]
    left_out = [item for item in nightly if item not in held and part_of(item.nodeid) != part]
    for item in left_out:
        items.remove(item)
    config.hook.pytest_deselected(items=left_out)
    files = sorted({_file(item).name for item in held})
    ran = len(nightly) - len(left_out)
    config.stash[CHOSEN] = str(Chosen(ran, len(nightly), part, base, None if changed is None else files))


def _folders(item: pytest.Item) -> Sequence[str]:
    return [str(folder) for mark in item.iter_markers("nightly") for folder in mark.args]


def _file(item: pytest.Item) -> PurePosixPath:
    return PurePosixPath(item.nodeid.partition("::")[0])


# --- workers know it, the controller tells it ------------------------------------------------------------------------
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["nightly"] = session.config.stash.get(CHOSEN, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    config: pytest.Config = node.config  # type: ignore[attr-defined]
    if chosen := getattr(node, "workeroutput", {}).get("nightly"):
        config.stash[CHOSEN] = chosen  # each worker chooses the same


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    if chosen := config.stash.get(CHOSEN, ""):
        terminalreporter.section("nightly tests")
        terminalreporter.write_line(chosen)
