"""Rows of runs, kept by the version of the run: a list of a thousand runs is read once, and then what changed."""

import threading
from collections import OrderedDict
from typing import Final

from rl_operator.errors import ForbiddenError
from rl_operator.targets.target import Target
from rl_operator.ui.views.run_rows import RunRow, run_row

MOST_ROWS_KEPT: Final = 20_000
"""2 KiB each."""

MOST_READ_SINGLY: Final = 20
"""More are read with all others: that is one call."""

MOST_AT_ONCE: Final = 4
"""Lists that are read. Each is 5 MiB of a thousand runs, and they all wait for the same target."""

Version = tuple[str, str, str]
"""Namespace, name, and what changes whenever the run does."""


class RowCache:
    """Of one target, whoever asks. Rows are for those who may list their runs: which these are is asked each time."""

    def __init__(self, most: int = MOST_ROWS_KEPT) -> None:
        self._most = most
        self._rows: OrderedDict[Version, RunRow] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = threading.BoundedSemaphore(MOST_AT_ONCE)

    def of(self, target: Target, namespace: str | None) -> list[RunRow]:
        """The runs of a namespace; None: of all. Blocks. Raises OperatorErrors."""
        with self._reading:
            keys = [(*key, version) for key, version in target.run_versions(namespace).items()]
            found = self._known(keys)
            missing = [key for key in keys if key not in found]
            found |= self._read(target, namespace, missing)
        return list(found.values())

    def _read(self, target: Target, namespace: str | None, missing: list[Version]) -> dict[Version, RunRow]:
        if not missing:
            return {}
        runs = _singly(target, missing) if len(missing) <= MOST_READ_SINGLY else None
        listed = target.runs(namespace, "") if runs is None else runs
        rows = {(row.namespace, row.name): row for row in map(run_row, listed)}
        read = {key: rows[key[:2]] for key in missing if key[:2] in rows}  # the others were deleted since
        self._keep(read)
        return read

    def _known(self, keys: list[Version]) -> dict[Version, RunRow]:
        with self._lock:
            found = {key: row for key in keys if (row := self._rows.get(key)) is not None}
            for key in found:
                self._rows.move_to_end(key)
        return found

    def _keep(self, rows: dict[Version, RunRow]) -> None:
        with self._lock:
            self._rows |= rows
            while len(self._rows) > self._most:
                self._rows.popitem(last=False)


def _singly(target: Target, missing: list[Version]) -> list[dict[str, object]] | None:
    """None: the caller may only list them."""
    try:
        return [run for namespace, name, _ in missing if (run := target.run(namespace, name)) is not None]
    except ForbiddenError:
        return None
