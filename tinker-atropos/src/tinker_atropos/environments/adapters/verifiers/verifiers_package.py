"""verifiers itself, imported without Anthropic's client.

Its answers are types that verifiers derives from, to speak to programs in that dialect. Their 3,000 modules are half of
what an import of verifiers takes, and no program is started here outside of a sandbox.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from rl_contract.env_vars import RL_SANDBOX
from tinker_atropos.environments.adapters.stand_ins import standing_in


def is_sandbox(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether what a policy writes may be run as a program here."""
    return environ.get(RL_SANDBOX) == "1"


_ANTHROPIC: Final[Mapping[str, Mapping[str, Any]]] = {
    "anthropic": {},
    "anthropic.types": {name: type(name, (BaseModel,), {"__module__": __name__}) for name in ("Message", "Usage")},
}

with standing_in({} if is_sandbox() or "anthropic" in sys.modules else _ANTHROPIC):
    import verifiers.v1 as vf
    from verifiers.v1.configs.env import default_agent_harness
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.state import state_cls
    from verifiers.v1.trace import AgentInfo, TraceTask
    from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

__all__ = [
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
