"""Modules that stand in for others while a library is imported that needs little of them."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType


@contextlib.contextmanager
def standing_in(attributes: Mapping[str, Mapping[str, object]]) -> Iterator[None]:
    """By module name, what is imported of it by name. What is imported already stays as it is. Afterwards whoever needs
    one of them imports the real one.
    """
    given = {name: ModuleType(name) for name in attributes if name not in sys.modules}
    for name, module in given.items():
        vars(module).update(attributes[name])
    sys.modules.update(given)
    try:
        yield
    finally:
        for name in given:
            del sys.modules[name]
