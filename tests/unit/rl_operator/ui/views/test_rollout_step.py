"""The ledger's bar, and the histogram of rewards."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rl_operator.rollouts.token_ledger import TokenLedger
from rl_operator.ui.views.rollout_address import RewardRange, read_address
from rl_operator.ui.views.rollout_step import (
    BAR_WIDTH,
    HISTOGRAM_WIDTH,
    ledger_parts,
    ledger_sentences,
    reward_bars,
)


def test_the_bar_is_full_and_nothing_is_invisible() -> None:
    parts = ledger_parts({"dropped": 1, "trained": 999_998, "unknown": 1})
    assert [(each.fate, each.share) for each in parts] == [
        ("trained", "> 99 %"),
        ("dropped", "< 1 %"),
        ("unknown", "< 1 %"),
    ]
    assert all(each.width >= 3 for each in parts)
    assert parts[-1].x + parts[-1].width == pytest.approx(BAR_WIDTH, abs=0.1)
    assert all(one.x + one.width == pytest.approx(other.x, abs=0.02) for one, other in pairwise(parts))


@pytest.mark.parametrize(
    ("told", "found", "balances", "words"),
    [
        ({"trained": 5}, {"trained": 5}, True, "5 tokens arrived, and the account balances"),
        ({"trained": 5}, {"trained": 4}, False, "does NOT balance"),
        (None, {"dropped": 4}, True, "4 tokens so far: the step has not been trained"),
    ],
)
def test_the_account_in_words(told: dict[str, int] | None, found: dict[str, int], balances: bool, words: str) -> None:
    sentence, does = ledger_sentences(TokenLedger(told, found))
    assert (does, words in sentence) == (balances, True)


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 1 / 3]), max_size=60))
@example([0.00015476611254620253])  # the smallest that is written without an exponent, with 15 decimals
def test_each_reward_is_in_the_link_of_one_bar(rewards: list[float]) -> None:
    bars = reward_bars(Counter(rewards), None)
    assert sum(bar.count for bar in bars) == len(rewards)
    for bar in bars:
        address, faults = read_address({"reward": str(bar.range)})
        assert not faults
        assert address.reward is not None
        assert sum(reward in address.reward for reward in rewards) >= bar.count
        assert 0 <= bar.x <= bar.x + bar.width <= HISTOGRAM_WIDTH


def test_few_rewards_have_a_bar_each() -> None:
    bars = reward_bars(Counter({0.0: 3, 1.0: 5, 1 / 3: 1}), RewardRange(1, 1))
    assert [(bar.words, bar.count, bar.chosen) for bar in bars] == [
        ("0", 3, False), ("0.333", 1, False), ("1", 5, True),
    ]  # fmt: skip
    assert bars[2].height > bars[0].height
    assert len(reward_bars(Counter(range(100)), None)) == 12
    assert reward_bars(Counter(), None) == ()
