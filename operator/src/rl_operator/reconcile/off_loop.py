"""Pure work on what users wrote. For the largest documents it takes some tenths of a second: a thread does it, one
document at a time, and the loop goes on. For small ones it takes less than the way to the thread and back.

Both are Python and share the interpreter's lock: they take turns, as often as `sys.setswitchinterval` says. That the
work ends is due to the limits of documents (`api/settings/size_limits.py`, `MAX_REFUSALS`), not to the thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Final, ParamSpec, TypeVar

from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import Runtime
from rl_operator.api.settings.fields import TRAINER_FIELDS, flattened
from rl_operator.api.settings.size_limits import are_small
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.run_check import Same

P = ParamSpec("P")
T = TypeVar("T")

MAX_KNOWN: Final = 200
"""Fields of an environment."""

_THREAD: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="documents")


async def off_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(work, *args, **kwargs))


def is_quick(run: TrainingRun, inputs: RunInputs) -> bool:
    """Whether check and rendering take about a millisecond. The search for what a misspelled name meant does not."""
    known, spec = inputs.environment.known, run.spec
    if known is None or inputs.environment.own or len(known.fields) > MAX_KNOWN:
        return False
    names = known.fields_by_name.keys()
    known_fields = ((spec.config, names), (spec.trainer, TRAINER_FIELDS.keys()))
    spelled = all(flattened(given, fields).keys() <= fields for given, fields in known_fields)
    return spelled and are_small(spec.config, spec.trainer) and _is_small(Same(inputs.runtime))


@lru_cache(maxsize=64)
def _is_small(runtime: Same[Runtime]) -> bool:
    return are_small(runtime.model.spec.to_wire())
