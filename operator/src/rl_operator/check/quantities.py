"""Kubernetes resource quantities: `500m`, `1Gi`, `2`."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from rl_operator.api.refusal import Refusal, redacted
from rl_operator.api.runtime import ResourceRequirements
from rl_operator.documents.parse import field_path

_QUANTITY: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?\d{1,2})?", re.ASCII)
_OWN: Final = ("cpu", "memory", "ephemeral-storage")
_RESOURCE: Final = re.compile(rf"{'|'.join(_OWN)}|hugepages-.+|.+/.+")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def parse_quantity(quantity: str | int) -> Decimal | None:
    """The amount; None if it is not a quantity (negative ones reserve nothing, and do not count)."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        return None
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _BINARY:
        return number * Decimal(2) ** _BINARY[suffix]
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return number.scaleb(exponent)


def resource_faults(path: tuple[str, ...], resources: ResourceRequirements) -> Iterator[Refusal]:
    """Values that no pod could be created with, or that would leave it unbounded."""
    for part, quantities in (("requests", resources.requests), ("limits", resources.limits)):
        for name, quantity in sorted(quantities.items()):
            if problem := _problem(part, name, parse_quantity(quantity)):
                code, hint = problem
                yield _refuse(code, (*path, part, name), quantity, hint)
    for name in sorted(resources.requests.keys() & resources.limits.keys()):
        request, limit = parse_quantity(resources.requests[name]), parse_quantity(resources.limits[name])
        if request is not None and limit is not None and request > limit:
            hint = f"a request cannot exceed its limit, which is {resources.limits[name]}: lower it, or raise the limit"
            yield _refuse("Inconsistent", (*path, "requests", name), resources.requests[name], hint)


def _problem(part: str, name: str, amount: Decimal | None) -> tuple[str, str] | None:
    """A refusal's code and hint."""
    if not _RESOURCE.fullmatch(name):
        return "UnknownField", f"there is no such resource: use {', '.join(_OWN)}, or one like nvidia.com/gpu"
    if amount is None:
        return "WrongType", "it must be a Kubernetes quantity, like 500m, 2 or 1Gi"
    if amount == 0 and part == "limits" and name in _OWN:
        return "OutOfBounds", "Kubernetes takes a limit of 0 for none at all: leave it out, or give an amount"
    return None


def _refuse(code: str, path: tuple[str, ...], given: str | int, hint: str) -> Refusal:
    return Refusal.model_validate({"code": code, "field": field_path(path), "given": redacted(given), "hint": hint})
