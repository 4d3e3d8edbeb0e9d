"""The tools as a plugin of hermes-agent: entry point `rl-operator` of its group `hermes_agent.plugins`.

Its loader calls `register` with a PluginContext (hermes_cli/plugins.py of hermes-agent 0.19); handlers take the model's
arguments and return JSON text. Hermes has no options for plugins, so environment variables select the target.
"""

import importlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from pydantic_core import to_json

from rl_operator.operator_errors import OperatorError
from rl_operator.targets.target import Target
from rl_operator.targets.target_choice import choose_target
from rl_operator.tools.agent_tool import AgentTool, input_schema
from rl_operator.tools.call_context import CallContext, RecentAnswers
from rl_operator.tools.serving.skill import SKILL_FILE, SKILL_NAME
from rl_operator.tools.toolset import TOOLS, dispatch, outcome_of

log = logging.getLogger(__name__)

TOOLSET: Final = "rl"

LOCAL_VARIABLE: Final = "RL_LOCAL"
"""1: this machine, even if there is a kubeconfig."""

CONTEXT_VARIABLE: Final = "RL_CONTEXT"
"""A context of the kubeconfig; default: its current one."""

NAMESPACE_VARIABLE: Final = "RL_NAMESPACE"
"""Default: the context's."""

INTERRUPT_SECONDS: Final = 0.2
"""How soon a wait notices that the user interrupts the agent."""

Handler = Callable[..., str]


class PluginContext(Protocol):
    """The part of it that we use."""

    def register_tool(
        self, *, name: str, toolset: str, schema: dict[str, object], handler: Handler, check_fn: Callable[[], bool]
    ) -> None: ...

    def register_skill(self, name: str, path: Path) -> None: ...


class Host:
    """The state in the hermes process: a target, opened on first use. Thread-safe."""

    def __init__(self) -> None:
        self._target: Target | None = None
        self._recent = RecentAnswers()
        self._lock = threading.Lock()

    def context(self, session: str) -> CallContext:
        """For one conversation: each finds its own drafts. Raises OperatorErrors."""
        target = self._opened()
        namespace = os.environ.get(NAMESPACE_VARIABLE) or target.namespace
        return CallContext(
            target,
            namespace,
            agent=f"hermes {session}",
            variables=os.environ,
            recent=self._recent,
            given_up=Interruption(),
        )

    def is_usable(self) -> bool:
        """Whether hermes should offer the tools. Makes no calls: if a cluster is away, each answer says so."""
        try:
            self._opened()
        except OperatorError as error:
            log.warning("the tools of rl-operator are not offered: %s", error)
            return False
        return True

    def _opened(self) -> Target:
        with self._lock:
            if self._target is None:
                local, context = os.environ.get(LOCAL_VARIABLE) == "1", os.environ.get(CONTEXT_VARIABLE, "")
                self._target = choose_target(local=local, context=context, state_dir=None, note=log.info)
            return self._target


class Interruption(threading.Event):
    """Also set while the user interrupts the agent whose thread makes the call."""

    def is_set(self) -> bool:
        return super().is_set() or _is_interrupted()

    def wait(self, timeout: float | None = None) -> bool:
        left = threading.TIMEOUT_MAX if timeout is None else timeout
        while not self.is_set() and left > 0:
            super().wait(min(left, INTERRUPT_SECONDS))
            left -= INTERRUPT_SECONDS
        return self.is_set()


def register(context: PluginContext) -> None:
    """Called once by hermes' loader."""
    host = Host()
    for tool in TOOLS:
        context.register_tool(
            name=tool.name,
            toolset=TOOLSET,
            schema={"name": tool.name, "description": tool.description, "parameters": input_schema(tool)},
            handler=_handler(tool, host),
            check_fn=host.is_usable,
        )
    context.register_skill(SKILL_NAME, SKILL_FILE)


def _handler(tool: AgentTool, host: Host) -> Handler:
    def handle(arguments: Mapping[str, object], session_id: str | None = None, **_: object) -> str:
        try:
            outcome = dispatch(tool, host.context(session_id or ""), arguments)
        except OperatorError as error:
            outcome = outcome_of(error)
        return to_json(outcome.answer, inf_nan_mode="null").decode()

    return handle


def _is_interrupted() -> bool:
    """As hermes passes it to tools, in the thread of the call."""
    try:
        interrupt = importlib.import_module("tools.interrupt")
    except ImportError:  # not in a hermes process
        return False
    return bool(interrupt.is_interrupted())
