"""The processes of a run: where each listens, how it ends, and what they tell each other about themselves.

Ports are those of a pod's manifest. In local mode every process gets a free one instead, in a variable.
"""

import errno
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Literal

API_PORT: Final = 8000
INFERENCE_PORT: Final = 8001
TRAINER_PORT: Final = 8002
OPS_PORTS: Final[Mapping[str, int]] = {"trainer": TRAINER_PORT, "api": 8003, "environment": 8004}
"""By container: `/healthz` and `/metrics` for everyone whom the network lets in; `/status`, and the trainer's
`/history` and `/rollouts`, for callers with the pod's token.
"""

OPS_TOKEN_HEADER: Final = "X-RL-Ops-Token"  # noqa: S105 -- the header's name

TINKER_SERVICE_PORT: Final = 8005
SANDBOX_PORT: Final = 8090

API_URL: Final = f"http://127.0.0.1:{API_PORT}"
INFERENCE_URL: Final = f"http://127.0.0.1:{INFERENCE_PORT}"


class ExitCode(IntEnum):
    """How a process of a run ends: it decides whether the operator tries again."""

    DONE = 0
    """Also stopped as asked."""
    FAILURE = 1
    """Anything else."""
    BAD_CONFIG = 2
    CREDENTIALS = 3
    """Or billing."""
    BACKEND_UNREACHABLE = 4
    """Past its deadline."""


ErrorClass = Literal[
    "config",
    "credentials",
    "billing",
    "backend",
    "checkpoint",
    "diverged",
    "environment",
    "silence",
    "budget",
    "internal",
]
"""Whose fault it is that a run cannot continue, in the trainer's result."""

ReportedState = Literal["starting", "working", "done", "failed"]
"""What a process reports about itself."""

PeerState = Literal["absent", "away", "starting", "working", "done", "failed", "lost"]
"""What the other side sees; `lost`: its lease expired without a final report."""

DISK_FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Of the operating system: whoever meets one waits, for as long as it lasts."""

NO_SPACE_STATUS: Final = 507
"""HTTP's status of an answer for which the disk has no room. The request is to be sent again, until it has."""

TRAINER_LOST: Final = "the trainer is lost"
"""How an environment begins to say that it ended for want of a trainer."""

EVALUATOR: Final = 0
"""The index of the environment that runs the evaluations."""
