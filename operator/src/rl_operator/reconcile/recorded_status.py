"""The write of a status, and the line of the log about it."""

import logging

from rl_operator.api.run import TrainingRun
from rl_operator.api.status_fields import RunStatus
from rl_operator.reconcile.run_client import RunClient
from rl_operator.status.text.log_sentence import log_sentence

log = logging.getLogger(__name__)


async def record_status(client: RunClient, run: TrainingRun, status: RunStatus) -> TrainingRun:
    """Logged only once it is written: a write that loses the race is another operator's to tell."""
    written = await client.write_status(run, status)
    if line := log_sentence(run, status):
        log.log(*line)
    return written
