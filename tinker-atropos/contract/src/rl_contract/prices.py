"""What a backend charges, as the operator tells the trainer (RL_PRICES)."""

import json
from dataclasses import asdict
from typing import Annotated, Self

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

Price = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True, config=ConfigDict(allow_inf_nan=False))
class TokenPrices:
    """Prices of a million tokens each: of prompts, sampled ones, and those of trained sequences."""

    prefill: Price
    sample: Price
    train: Price
    currency: str

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValidationError."""
        return TypeAdapter(cls).validate_json(text)

    def to_json(self) -> str:
        return json.dumps(asdict(self))
