"""What an environment goes on from after a lost attempt: reported with heartbeats, kept by the trainer beside the
weights of each checkpoint. Environments of our own base class may have one (`saved_state`); all others have none.
"""

import logging
from typing import Any

from tinker_atropos.environments.own_class import is_own
from tinker_atropos.environments.runner.reporting.heartbeat import Heartbeat
from tinker_atropos.environments.runner.reporting.shared_state import SharedState

logger = logging.getLogger(__name__)


async def restore(env: Any, heartbeat: Heartbeat) -> None:
    """Called once the trainer has registered: it knows the checkpoint that training continues from."""
    if not is_own(env):
        return
    await heartbeat.tell()  # the last answer may be older than the trainer's registration
    state = heartbeat.answer and heartbeat.answer.environment_state
    if state:
        logger.info("continuing with the environment's state %s", state)
        env.restore_state(state)


def publish(env: Any, shared: SharedState) -> None:
    if is_own(env):
        shared.environment_state = env.saved_state()
