from types import SimpleNamespace

import pytest

from tinker_atropos.environments.runner.rollouts import respect_room

ROOMS = {
    "as upstream: no room is named": ({}, 8),
    "unlimited": ({"room": None}, 8),
    "for more groups than workers": ({"room": 1000}, 8),
    "for three groups": ({"room": 12}, 3),
    "for a part of one: it would never be used otherwise": ({"room": 3}, 1),
    "none": ({"room": 0}, 0),
}


@pytest.mark.parametrize(("status", "workers"), ROOMS.values(), ids=ROOMS)
def test_no_more_groups_are_begun_than_the_run_still_wants(status, workers):
    env = SimpleNamespace(status_dict=status, max_num_workers=8, config=SimpleNamespace(group_size=4))
    respect_room(env)
    assert env.max_num_workers == workers
