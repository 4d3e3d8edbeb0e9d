"""verifiers itself, imported without Anthropic's client.

Its answers are types that verifiers derives from, to speak to programs in that dialect. Their 3,000 modules are half of
what an import of verifiers takes, and no program is started here outside of a sandbox.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final

from pydantic import BaseModel

SANDBOX_VARIABLE: Final = "RL_SANDBOX"


def is_sandbox(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether what a policy writes may be run as a program here."""
    return environ.get(SANDBOX_VARIABLE) == "1"


@contextlib.contextmanager
def _anthropic_hidden() -> Iterator[None]:
    """Two empty classes in its place. A taskset that needs it imports the real one later."""
    if is_sandbox() or "anthropic" in sys.modules:
        yield
        return
    package, types = ModuleType("anthropic"), ModuleType("anthropic.types")
    for name in ("Message", "Usage"):
        setattr(types, name, type(name, (BaseModel,), {"__module__": types.__name__}))
    package.types = types  # type: ignore[attr-defined]
    hidden = {module.__name__: module for module in (package, types)}
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


with _anthropic_hidden():
    import verifiers.v1 as vf
    from verifiers.v1.configs.env import default_agent_harness
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.state import state_cls
    from verifiers.v1.trace import AgentInfo, TraceTask
    from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

__all__ = [
    "SANDBOX_VARIABLE",
    "AgentInfo",
    "MessageNode",
    "TraceTask",
    "default_agent_harness",
    "is_sandbox",
    "load_taskset",
    "message_to_wire",
    "state_cls",
    "taskset_config_type",
    "vf",
]
