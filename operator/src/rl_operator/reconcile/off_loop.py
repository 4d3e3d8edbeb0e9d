"""Pure work on what users wrote. For the largest documents it takes some tenths of a second: a thread does it, one
document at a time, and the loop goes on.

Both are Python and share the interpreter's lock: they take turns, as often as `sys.setswitchinterval` says. That the
work ends is due to the limits of documents (`api/size_limits.py`, `MAX_REFUSALS`), not to the thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREAD: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="documents")


async def off_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(work, *args, **kwargs))
