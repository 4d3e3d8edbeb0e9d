"""What differs between a live run and a file: fields of the spec, and the config that follows from them. Pure."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rl_operator.api.value_text import same_value
from rl_operator.documents.yaml_text import flow

MAY_CHANGE: Final = frozenset(
    {
        "suspend",
        "startDeadlineSeconds",
        "progressDeadlineSeconds",
        "activeDeadlineSeconds",
        "budget",
        "ttlSecondsAfterFinished",
        "environmentReplicas",
        "priority",
    }
)
"""Fields of the spec that are not frozen once a run has started."""

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of the spec; `before` or `after` is `unset` if the field is missing."""

    field: str
    before: str
    after: str

    @property
    def frozen(self) -> bool:
        """Whether a started run refuses the change."""
        return self.field.removeprefix("spec.").split(".")[0] not in MAY_CHANGE


def spec_changes(live: Mapping[str, object], wanted: Mapping[str, object]) -> tuple[FieldChange, ...]:
    """The differing fields, mappings field by field, in alphabetical order."""
    return tuple(_changes("spec", live, wanted))


def text_changes(name: str, before: str, after: str) -> list[str]:
    """A unified diff without line ends; empty when the texts are equal."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} (live)", f"{name} (file)", lineterm="", n=1
    )
    return list(lines)


def _changes(path: str, live: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[FieldChange]:
    for name in sorted(live.keys() | wanted.keys()):
        before, after = live.get(name, _ABSENT), wanted.get(name, _ABSENT)
        if all(each is _ABSENT or isinstance(each, Mapping) for each in (before, after)):
            yield from _changes(
                f"{path}.{name}", *(each or {} if each is not _ABSENT else {} for each in (before, after))
            )
        elif _ABSENT in (before, after) or not same_value(before, after):
            yield FieldChange(f"{path}.{name}", _written(before), _written(after))


def _written(value: object) -> str:
    return "unset" if value is _ABSENT else flow(value)
