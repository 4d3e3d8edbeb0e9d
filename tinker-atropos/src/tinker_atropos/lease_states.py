"""The states of a lease, as the trajectory API, the trainer and the environments exchange them."""

from typing import Literal

ReportedState = Literal["starting", "working", "done", "failed"]
"""What a process reports about itself."""

PeerState = Literal["absent", "away", "starting", "working", "done", "failed", "lost"]
"""What the other side sees; `lost`: its lease expired without a final report."""

EVALUATOR = 0
"""The index of the environment that runs the evaluations."""
