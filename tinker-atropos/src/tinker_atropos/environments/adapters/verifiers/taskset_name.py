"""The name of a taskset, in the forms that verifiers takes: `sort-digits`, `owner/sort_digits`, `sort_digits@1.2.0`."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class TasksetName:
    """`module` is what is imported: the name without its owner, with `_` for `-`. `version` None: any will do."""

    module: str
    version: str | None = None

    @classmethod
    def parse(cls, name: str) -> Self:
        plain, _, version = name.rpartition("/")[2].partition("@")
        return cls(plain.replace("-", "_").lower(), version or None)
