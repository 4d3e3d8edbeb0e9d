"""What a group tells people about its item and its rewards."""

import json
from dataclasses import dataclass
from datetime import date

import numpy as np
import pytest

from rl_contract.rollout_records import LONGEST_ITEM
from tinker_atropos.environments.rollout.conversation import SampledSequence
from tinker_atropos.environments.rollout.rollouts import Rollout, scored_group, shown_item


@dataclass
class Sum:
    first: int
    second: int


class Opaque:
    def __repr__(self) -> str:
        return "Opaque(" + "x" * 2000 + ")"


ITEMS = {
    "a text": ("2 + 3", "2 + 3"),
    "JSON": ({"sum": [2, 3], "easy": True}, {"sum": [2, 3], "easy": True}),
    "0": (0, 0),
    "a data class": (Sum(2, 3), {"first": 2, "second": 3}),
    "an array": (np.array([2, 3]), [2, 3]),
    "keys that are numbers": ({2: "two"}, {"2": "two"}),
    "a day": (date(2026, 1, 2), "2026-01-02"),
    "a large number": (10**30, str(10**30)),
    "no JSON": ({1j}, "{1j}"),
    "a long object": (Opaque(), ("Opaque(" + "x" * 2000)[:LONGEST_ITEM]),
    "a long text": ("é" * 2000, '"' + "é" * 499),
}


@pytest.mark.parametrize(("item", "shown"), ITEMS.values(), ids=ITEMS)
def test_an_item_is_shown_as_plain_json(item, shown) -> None:
    """Others write groups too, such as `data_path_to_save_groups`, with a writer that knows no data classes."""
    found = shown_item(item)
    assert found == shown
    assert json.loads(json.dumps(found)) == shown


def rollout(score: float, **components: float) -> Rollout:
    return Rollout([SampledSequence([1, 2], [-100, 2], [1.0, -0.5])], score, components=components)


def test_a_group_tells_its_item_and_the_parts_of_its_rewards() -> None:
    group = scored_group([rollout(1.0, form=0.5, answer=0.5), rollout(0.0)], item=Sum(2, 3))
    assert group["group_overrides"] == {
        "item": {"first": 2, "second": 3},
        "components": [{"form": 0.5, "answer": 0.5}, {}],
    }


def test_a_group_without_them_is_as_before() -> None:
    assert "group_overrides" not in scored_group([rollout(1.0), rollout(0.0)])
    assert scored_group([rollout(1.0), rollout(0.0)], item=0)["group_overrides"] == {"item": 0}
