"""What a trial prints: one JSON object per line on stdout. A step's line is printed as soon as the step is done.

`event` says which line it is: `started`, `step` or `summary`. The summary is printed once, whatever happens; a process
that is killed leaves the steps that it had completed.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Response:
    """A model's response to one of the caller's prompts, and its score."""

    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Agent:
    """What the model did as an agent, in all completions together, those that failed included. `turns` counts its
    answers. `tool_errors`: calls that went wrong; None: only the environment's own programs know. `offers`: requests
    that had tools.
    """

    turns: int
    tool_calls: int
    tool_errors: int | None = None
    offers: int = 0

    @classmethod
    def of_all(cls, agents: Sequence["Agent"]) -> "Agent":
        errors = [each.tool_errors for each in agents if each.tool_errors is not None]
        return cls(
            sum(each.turns for each in agents),
            sum(each.tool_calls for each in agents),
            sum(errors) if errors else None,
            sum(each.offers for each in agents),
        )

    def to_wire(self) -> dict[str, int]:
        known = {} if self.tool_errors is None else {"tool_errors": self.tool_errors}
        return {"turns": self.turns, "tool_calls": self.tool_calls, **known}


NO_CALLS = (
    "the model had tools and called none of them: either it saw no need to, or its server does not pass tools on to it"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One item: `scores` has one number per completion. `unscored`: completions that the environment did not score."""

    number: int
    scores: Sequence[float]
    seconds: float
    error: str | None = None
    unscored: int = 0
    prompt: str | None = None
    responses: Sequence[Response] = ()
    agent: Agent | None = None

    @property
    def correct(self) -> int:
        return sum(score > 0 for score in self.scores)

    def to_wire(self) -> dict[str, object]:
        wire: dict[str, object] = {
            "event": "step",
            "step": self.number,
            "completions": len(self.scores),
            "correct": self.correct,
            "scores": [round(score, 4) for score in self.scores],
            "seconds": round(self.seconds, 2),
            "unscored": self.unscored,
            "agent": self.agent and self.agent.to_wire(),
            "error": self.error,
            "prompt": self.prompt,
            "responses": [{"text": each.text, "score": round(each.score, 4)} for each in self.responses],
        }
        return {name: value for name, value in wire.items() if name in ALWAYS or value}


ALWAYS = frozenset({"event", "step", "completions", "correct", "scores", "seconds"})


def summary(model: str, steps_requested: int, steps: Sequence[Step], seconds: float) -> dict[str, Any]:
    """Accuracy = correct / total completions; step_success_rate = steps with a correct completion / steps tested. Both
    are 0 if nothing was tested. `agent` and `note`, a remark on it, only if there was one.
    """
    total, correct = sum(len(step.scores) for step in steps), sum(step.correct for step in steps)
    successful = sum(step.correct > 0 for step in steps)
    return {
        "event": "summary",
        "model": model,
        "steps_requested": steps_requested,
        "steps_tested": len(steps),
        "total_completions": total,
        "correct_completions": correct,
        "accuracy": round(correct / total, 4) if total else 0.0,
        "steps_with_correct": successful,
        "step_success_rate": round(successful / len(steps), 4) if steps else 0.0,
        "seconds": round(seconds, 2),
        **_agents([step.agent for step in steps if step.agent]),
    }


def _agents(agents: Sequence[Agent]) -> dict[str, object]:
    if not agents:
        return {}
    agent = Agent.of_all(agents)
    silent = agent.offers and agent.turns and not agent.tool_calls
    return {"agent": agent.to_wire()} | ({"note": NO_CALLS} if silent else {})


class Report:
    """Reserves stdout for itself: whatever an environment prints goes to stderr."""

    def __init__(self, model: str, steps_requested: int, redact: Callable[[str], str]) -> None:
        self.steps_requested = steps_requested
        self._steps: list[Step] = []
        self._model, self._redact = model, redact
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._closed = False
        self._output = os.dup(1)
        os.dup2(2, 1)

    def start(self, environment: str, group_size: int, limit_seconds: float) -> None:
        started = {"event": "started", "environment": environment, "model": self._model}
        self._write(
            started
            | {"steps_requested": self.steps_requested, "group_size": group_size, "limit_seconds": limit_seconds}
        )

    def add(self, step: Step) -> None:
        with self._lock:
            if not self._closed:
                self._steps.append(step)
                self._write(step.to_wire())

    def close(self, error: str | None = None) -> None:
        """Print the summary, once. May be called from any thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            wire = summary(self._model, self.steps_requested, self._steps, time.monotonic() - self._begun)
            self._write(wire | ({"error": error} if error else {}))

    def _write(self, wire: dict[str, object]) -> None:
        line = self._redact(json.dumps(wire, ensure_ascii=False, allow_nan=False))
        left = memoryview(f"{line}\n".encode(errors="replace"))
        while left:
            left = left[os.write(self._output, left) :]
