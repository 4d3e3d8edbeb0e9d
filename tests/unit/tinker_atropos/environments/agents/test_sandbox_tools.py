import random

import pytest

from tinker_atropos.environments.agents.sandbox_tools import DISTRIBUTIONS, TOOLSETS, check_toolsets, tools_of_group
from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.errors import ConfigError

OWN = Tool("own", "", {"type": "object", "properties": {}}, lambda: 1)
DRAWS = 1000


def names(enabled=None, disabled=None, distribution=None, seed=0):
    return set(tools_of_group(enabled, disabled, distribution, [OWN], random.Random(seed)))


def test_all_without_a_wish():
    assert names() == {"terminal", "read_file", "write_file", "patch", "search_files", "own"}


def test_wishes():
    assert names(["files"]) == {"read_file", "write_file", "patch", "own"}
    assert names([]) == {"own"}
    assert names(disabled=["files", "web"]) == {"terminal", "search_files", "own"}


def test_a_distribution_is_drawn_for_each_group():
    drawn = [names(distribution="development", seed=seed) for seed in range(DRAWS)]
    for toolset, percent in DISTRIBUTIONS["development"].items():
        share = sum(TOOLSETS[toolset][0] in each for each in drawn) / DRAWS
        assert share == pytest.approx(percent / 100, abs=0.05)
    assert all(len(each) > 1 for each in drawn)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ((["terminals"], None, None), "env.enabled_toolsets names 'terminals', which is not a toolset; did you mean"),
        ((["web"], None, None), "env.enabled_toolsets names 'web', which is off here: an environment has no way"),
        ((None, ["x"], None), "env.disabled_toolsets names 'x', which is not a toolset .known: terminal, files, file"),
        ((None, None, "all"), "env.distribution is 'all'; it must be one of default, development"),
        ((["files"], None, "default"), "env.distribution and env.enabled_toolsets exclude each other"),
    ],
)
def test_wishes_that_are_refused(wishes, message):
    with pytest.raises(ConfigError, match=message):
        check_toolsets(*wishes)
