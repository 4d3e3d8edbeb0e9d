"""Keeping an attempt's series past its pod.

The order at an end is status -> series -> finalizer. Whoever is killed in between leaves a status that names a series
which is not there, or is that of the attempts before: it may be missing, it is never wrong. Nothing waits for it.
"""

import logging

from rl_operator.api.run import RunStatus
from rl_operator.errors import OperatorError
from rl_operator.reconcile.run_client import RunClient
from rl_operator.status.view import View

log = logging.getLogger(__name__)


async def keep_history(view: View, status: RunStatus, client: RunClient) -> None:
    """Write the series of the attempt that has just ended, if there is one. Its loss is no failure."""
    if view.pod is None or not view.has_history:
        return
    run = view.run.with_changes(status=status)
    try:
        await client.save_history(run, view.pod)
    except OperatorError as error:
        log.warning("run %s/%s: the series of attempt %s is lost: %s", *run.key, status.attempt, error)
