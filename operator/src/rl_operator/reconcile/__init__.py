"""The steps of a reconcile, the same for both back ends."""

from rl_operator.reconcile.reconcile import Pace, reconcile
from rl_operator.reconcile.world import Key, World

__all__ = ["Key", "Pace", "World", "reconcile"]
