"""Kubernetes resources of a container, and their quantities: `500m`, `1Gi`, `2`."""

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import Field

from rl_operator.api.model import ApiModel

_QUANTITY: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?\d{1,2})?", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

Quantity = Annotated[str, Field(max_length=64)]


class ResourceRequirements(ApiModel):
    """Kubernetes resources of a container."""

    requests: dict[str, Quantity | int] = Field(default_factory=dict, max_length=32, description="What is reserved.")
    limits: dict[str, Quantity | int] = Field(default_factory=dict, max_length=32, description="What is allowed.")


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
