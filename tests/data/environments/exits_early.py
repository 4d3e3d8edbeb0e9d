import sys

from tinker_atropos.environments.bundled import digits
from tinker_atropos.environments.bundled.sort_digits import SortDigits


class ExitsEarly(SortDigits):
    """Ends its process in the middle of a rollout, as if all were well."""

    name = "exits_early"

    def score(self, item: digits.Item, completion: str) -> float:
        sys.exit(0)
