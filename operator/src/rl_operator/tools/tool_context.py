"""Where a call is answered: which target, for whom, and within what limits."""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rl_operator.targets.target import Target
from rl_operator.tools.recent_answers import RecentAnswers

LONGEST_WAIT_SECONDS = 240.0


@dataclass(frozen=True)
class ToolContext:
    """One caller's. It holds nothing that a restart would lose: drafts are runs, and recent answers only save calls."""

    target: Target
    namespace: str
    agent: str = ""
    """Which of a user's agents asks, if they tell: their latest drafts are kept apart."""

    longest_wait: float = LONGEST_WAIT_SECONDS
    """Seconds; a door whose clients give up earlier has less."""

    recent: RecentAnswers = field(default_factory=RecentAnswers)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    given_up: threading.Event = field(default_factory=threading.Event)
    """Set by the door when nobody waits for the answer any more, or when the process ends."""

    def pause(self, seconds: float) -> bool:
        """Between two looks. False: the waiting is over, answer with what there is."""
        return not self.given_up.wait(seconds)

    @property
    def caller(self) -> str:
        """A label's value that is the same for all calls of this agent of this user, and tells neither's name."""
        return hashlib.sha256(f"{self.target.caller}\n{self.agent}".encode()).hexdigest()[:16]

    def where(self) -> dict[str, Any]:
        """Which target answered; part of answers that name objects."""
        return {"target": self.target.label, "namespace": self.namespace}
