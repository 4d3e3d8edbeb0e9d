from typing import Any

from tinker_atropos.environments.bundled.sort_digits import SortDigits


class NeverSendsAGroup(SortDigits):
    """Finds no rollout good enough to send."""

    name = "never_sends_a_group"

    async def collect_trajectories(self, item: Any) -> Any:
        return None, []
