"""The harness in which an agent is nothing but the policy: each turn is one request, made in this process.

verifiers' own harnesses start a program for each rollout, with an environment that is made at run time: seconds of CPU,
and a package index. What a harness must do is to send its requests through the interception server, which records them.
"""

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final

import aiohttp

from tinker_atropos.environments.adapters.verifiers.verifiers_package import message_to_wire, vf

HARNESS_ID: Final = "tinker_atropos_policy_chat"

OVERFLOWS: Final = ("sequence_full", "context_length_exceeded")
"""How the inference server says that a prompt leaves no room for an answer."""

TRUNCATED: Final = "max_total_tokens"
"""verifiers' own word for an episode that has used up its tokens: it is scored as it is."""


class PolicyChatConfig(vf.HarnessConfig):  # type: ignore[misc]  # not typed here: it is not installed beside mypy
    """It has no fields of its own."""


class PolicyChat(vf.Harness[PolicyChatConfig]):  # type: ignore[misc]  # as above
    """One answer of the policy for each turn of its environment."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    _session: ClassVar[aiohttp.ClientSession | None] = None

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls) -> AsyncIterator[None]:
        """All rollouts share their connections while the block runs."""
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)  # episodes have a limit
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            cls._session = session
            try:
                yield
            finally:
                cls._session = None

    async def launch(
        self, ctx: Any, trace: Any, _runtime: Any, endpoint: str, secret: str, _mcp_urls: Any, data: Any
    ) -> Any:
        """Without room for an answer the episode is over, and is scored as it is."""
        assert self._session is not None, "the environment is set up"
        body = {"model": ctx.model, "messages": self._messages(data)}
        headers = {"Authorization": f"Bearer {secret}"}
        async with self._session.post(f"{endpoint}/chat/completions", json=body, headers=headers) as response:
            said = await response.text()
        if response.ok:
            return vf.ProgramResult(0, "", "")
        if any(each in said for each in OVERFLOWS):
            trace.stop(TRUNCATED)
        return vf.ProgramResult(1, "", said)

    def _messages(self, data: Any) -> list[dict[str, Any]]:
        system, prompt = self.resolve_prompt(data)
        first = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            return [*first, {"role": "user", "content": prompt}]
        return [*first, *map(message_to_wire, prompt or [])]


__all__ = ["PolicyChat"]

# Harnesses are found by their modules' names, and only at the top level.
sys.modules.setdefault(HARNESS_ID, sys.modules[__name__])
