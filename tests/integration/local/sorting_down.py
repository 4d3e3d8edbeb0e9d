"""A user's own environment in two files: digits from high to low, and the reward in a module that it imports."""


def entry(rewards: str) -> str:
    """The environment; `rewards`: the module with `places`."""
    return ENTRY.replace("REWARDS", rewards)


ENTRY = '''"""Digits from high to low; what is right is in another module."""

import itertools

from REWARDS import places
from tinker_atropos.environments.base import Environment, EnvironmentConfig

class SortDown(Environment[tuple[int, ...]]):
    """Sort four digits from high to low."""

    name = "sort_down"

    @classmethod
    def config_init(cls):
        return EnvironmentConfig(group_size=8, batch_size=32, max_token_length=32), []

    def training_items(self):
        return list(itertools.permutations(range(7), 4))

    def held_out_items(self):
        return [(5, 1, 6, 2)]

    def prompt(self, item):
        return [{"role": "user", "content": "sort " + " ".join(map(str, item))}]

    def score(self, item, completion):
        return places(item, completion)
'''
REWARDS = """def places(item, completion):
    right = "".join(map(str, sorted(item, reverse=True)))
    return sum(one == other for one, other in zip(completion, right)) / 4
"""
