"""How large libraries are imported: without torch, and without collecting garbage meanwhile."""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

TORCH_USERS = ("torch", "transformers")
NO_ADVICE = "TRANSFORMERS_NO_ADVISORY_WARNINGS"  # transformers would warn that torch is missing


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


def prepare_for_sdk() -> None:
    """No telemetry, and no torch: tinker and transformers would import it if installed, at a cost of 2 s and 180 MB."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # None makes its import fail, as documented
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    os.environ.setdefault(NO_ADVICE, "1")


@contextlib.contextmanager
def torch_hidden(unless_mentioned_in: Path) -> Iterator[None]:
    """Avoid the import of torch, which transformers does whenever torch is installed: seconds of CPU that the trainer
    needs. Does nothing if the environment's file mentions torch or transformers.
    """
    source = unless_mentioned_in.read_text(encoding="utf-8", errors="replace")
    if "torch" in sys.modules or any(user in source for user in TORCH_USERS):
        yield
        return
    os.environ.setdefault(NO_ADVICE, "1")
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes its import fail
    try:
        yield
    finally:
        del sys.modules["torch"]
