"""The words of a lease: the trajectory API, the trainer and the environments speak of their states with them."""

from typing import Literal

ReportedState = Literal["starting", "working", "done", "failed"]
"""What a process says of itself."""

PeerState = Literal["absent", "away", "starting", "working", "done", "failed", "lost"]
"""What the other side is told of it; `lost`: it fell silent without a last word."""

EVALUATOR = 0
"""The index of the environment that evaluates."""
