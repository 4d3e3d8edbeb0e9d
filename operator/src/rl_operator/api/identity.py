"""What follows from one frozen model alone, found out once for each."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Model = TypeVar("Model")


@dataclass(frozen=True, slots=True, eq=False)
class Same(Generic[Model]):
    """Equal only to what holds the very same object: an argument for functions with an `lru_cache`."""

    model: Model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.model is self.model

    def __hash__(self) -> int:
        return id(self.model)
