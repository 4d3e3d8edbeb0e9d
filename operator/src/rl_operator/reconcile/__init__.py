"""The steps of a reconcile, the same for both targets."""

from rl_operator.reconcile.reconcile import ReconcilePace, reconcile
from rl_operator.reconcile.run_client import Key, RunClient

__all__ = ["Key", "ReconcilePace", "RunClient", "reconcile"]
