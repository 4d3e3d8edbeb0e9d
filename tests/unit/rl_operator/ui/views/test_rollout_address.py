"""The address of a step's page: what it says, and what is said of what it cannot say."""

from typing import Any
from urllib.parse import parse_qsl

import pytest

from rl_operator.ui.views.rollout_address import RewardRange, RolloutAddress, read_address


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, {}),
        ({"step": "12", "fate": "dropped"}, {"step": 12, "fate": "dropped"}),
        ({"reward": "-1--0.5"}, {"reward": RewardRange(-1, -0.5)}),
        ({"reward": "0-1e-7"}, {"reward": RewardRange(0, 1e-7)}),
        ({"q": " I cannot ", "scope": "all"}, {"q": "I cannot", "scope": "all"}),
        ({"color": "gap", "view": "talk"}, {"color": "gap", "view": "talk"}),
        ({"sort": "length-asc"}, {"sort": "length-asc"}),
        ({"group": "3", "page": "2", "before": "7"}, {"group": 3, "page": 2, "before": 7}),
    ],
)  # fmt: skip
def test_what_can_be_said(query: dict[str, str], expected: dict[str, Any]) -> None:
    address, faults = read_address(query)
    assert (address, faults) == (RolloutAddress(**expected), [])
    again, _ = read_address(dict(parse_qsl(address.to(page=address.page, group=address.group, before=address.before))))
    assert again == address


@pytest.mark.parametrize(
    ("name", "given", "allowed"),
    [
        ("step", "-1", "a step's number"),
        ("step", "٣", "a step's number"),
        ("step", "9" * 5000, "a step's number"),
        ("fate", "eaten", "one of trained, no_advantage"),
        ("sort", "beauty", "one of reward, reward-asc"),
        ("reward", "1-0", "a range like 0-0.5"),
        ("reward", "nan-inf", "a range like 0-0.5"),
        ("reward", "1e99-1", "a range like 0-0.5"),
        ("color", "red", "one of advantage, gap, surprise, fate"),
        ("page", "0", "from 1"),
        ("q", "x" * 201, "at most 200 characters"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_named(name: str, given: str, allowed: str) -> None:
    address, (fault,) = read_address({name: given, "view": "talk"})
    assert address == RolloutAddress(view="talk")
    assert fault.startswith(f"{name} is ")
    assert allowed in fault
    assert len(fault) < 250


def test_another_choice_begins_on_its_first_page() -> None:
    address = RolloutAddress(step=3, color="gap", page=4, group=2)
    assert dict(parse_qsl(address.to(fate="dropped"))) == {"step": "3", "color": "gap", "fate": "dropped"}
