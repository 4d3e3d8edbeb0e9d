"""Resources that no pod could be created with, or that would leave it unbounded."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final

from rl_operator.api.refusal import Refusal, RefusalCode, field_path, redacted
from rl_operator.api.spec_parts.container_resources import ResourceRequirements, parse_quantity
from rl_operator.api.spec_parts.sandboxes import LEAST

_OWN: Final = ("cpu", "memory", "ephemeral-storage")
_RESOURCE: Final = re.compile(rf"{'|'.join(_OWN)}|hugepages-.+|.+/.+")


def resource_faults(path: tuple[str, ...], resources: ResourceRequirements) -> Iterator[Refusal]:
    """Values that no pod could be created with, or that would leave it unbounded."""
    for part, quantities in (("requests", resources.requests), ("limits", resources.limits)):
        yield from quantity_faults((*path, part), quantities)
    for name in sorted(resources.requests.keys() & resources.limits.keys()):
        request, limit = parse_quantity(resources.requests[name]), parse_quantity(resources.limits[name])
        if request is not None and limit is not None and request > limit:
            hint = f"a request cannot exceed its limit, which is {resources.limits[name]}: lower it, or raise the limit"
            yield _refuse("Inconsistent", (*path, "requests", name), resources.requests[name], hint)


def quantity_faults(path: tuple[str, ...], quantities: Mapping[str, str | int]) -> Iterator[Refusal]:
    """Those of a mapping at that path; where it is one of requests, 0 is a value."""
    for name, quantity in sorted(quantities.items()):
        if problem := _problem(path[-1], name, parse_quantity(quantity)):
            code, hint = problem
            yield _refuse(code, (*path, name), quantity, hint)


def small_limits(path: tuple[str, ...], limits: Mapping[str, str | int]) -> Iterator[Refusal]:
    """Those with which the tool server of a sandbox could not run."""
    for name, least in LEAST.items():
        given, needed = parse_quantity(limits.get(name, least)), parse_quantity(least)
        if given is not None and needed is not None and given < needed:
            hint = f"the tool server of a sandbox needs a part of it: give at least {least}"
            yield _refuse("OutOfBounds", (*path, name), limits[name], hint)


def _problem(part: str, name: str, amount: Decimal | None) -> tuple[RefusalCode, str] | None:
    """A refusal's code and hint."""
    if not _RESOURCE.fullmatch(name):
        return "UnknownField", f"there is no such resource: use {', '.join(_OWN)}, or one like nvidia.com/gpu"
    if amount is None:
        return "WrongType", "it must be a Kubernetes quantity, like 500m, 2 or 1Gi"
    if amount == 0 and part != "requests" and name in _OWN:
        return "OutOfBounds", "Kubernetes takes a limit of 0 for none at all: leave it out, or give an amount"
    return None


def _refuse(code: RefusalCode, path: tuple[str, ...], given: str | int, hint: str) -> Refusal:
    return Refusal(code=code, field=field_path(path), given=redacted(given), hint=hint)
