"""The trainer's result as it grows: one value, written again at each change."""

from dataclasses import replace
from typing import Any

from tinker_atropos.errors import RunError
from tinker_atropos.result import Result, ResultError, write_result


class ResultFile:
    """Holds the result; nothing is written before the first `write`, so that a start says nothing it does not know."""

    def __init__(self, path: str | None, result: Result) -> None:
        self._path = path
        self.result = result

    def write(self, **changes: Any) -> None:
        self.result = replace(self.result, **changes)
        write_result(self._path, self.result)

    def write_failure(self, error: RunError) -> None:
        self.write(outcome="failed", error=ResultError(error.error_class, str(error)))
