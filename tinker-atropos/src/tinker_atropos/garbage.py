"""Python's garbage collection, and when not to have it."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while libraries are imported: what they make stays, and to look at it again and again takes
    a quarter of the time. No later collection looks at it either.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
