"""Two environments in the real `openenv` package, run by a Python that has it: `python openenv_program.py guess`.

Prints its port. `guess`: a number from 0 to 9, the last digit of the seed. `tools`: a shelf that adds.
"""

import socket
import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import Environment, MCPEnvironment, create_fastapi_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

SESSIONS = 8


class Guess(Action):
    number: int = Field(ge=0, le=9, description="From 0 to 9.")


class Hint(Observation):
    hint: str


class GuessEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    secret = 0

    def reset(self, seed: int | None = None, **_: Any) -> Hint:
        self.secret = (seed or 0) % 10
        return Hint(hint="Guess.")

    def step(self, action: Guess, **_: Any) -> Hint:
        if action.number == 0:
            raise RuntimeError("zero is not a number")
        if action.number == self.secret:
            return Hint(hint="Right.", reward=0.75, done=True)
        return Hint(hint="higher" if action.number < self.secret else "lower", reward=0.125)

    @property
    def state(self) -> State:
        return State()


class ToolEnvironment(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        tools = FastMCP("tools")

        @tools.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        super().__init__(tools)

    def reset(self, **_: Any) -> Observation:
        return Observation(metadata={"task": "add 1 and 2"})

    def step(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        return self._paid(super().step(action, timeout_s=timeout_s, **options))

    async def step_async(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        return self._paid(await super().step_async(action, timeout_s=timeout_s, **options))

    def _paid(self, observation: Observation) -> Observation:
        if isinstance(observation, CallToolObservation) and observation.error is None:
            observation.reward, observation.done = 1.0, True
        return observation

    def _step_impl(self, action: Action, **_: Any) -> Observation:  # noqa: ARG002 -- the base class has it
        raise ValueError("there are only tools")

    @property
    def state(self) -> State:
        return State()


CLASSES = {
    "guess": (GuessEnvironment, Guess, Hint),
    "tools": (ToolEnvironment, CallToolAction, CallToolObservation),
}

if __name__ == "__main__":
    app = create_fastapi_app(*CLASSES[sys.argv[1]], max_concurrent_envs=SESSIONS)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
