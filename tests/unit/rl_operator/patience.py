"""Waiting for what other tasks do."""

import asyncio
from collections.abc import Callable


async def until(what: str, look: Callable[[], bool], seconds: float = 60.0) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not look():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {seconds:g} s") from None
