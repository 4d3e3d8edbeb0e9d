import asyncio

import pytest

from tinker_atropos.trainer.backend.token_use import TokenUse


def ask(used: TokenUse, prompt: int, samples: int, tokens: int | None) -> None:
    with used.sampling(prompt, samples, max_tokens=100) as answered_with:
        if tokens is None:
            raise asyncio.CancelledError
        answered_with(tokens)


def test_a_prompt_is_charged_once_and_samples_each() -> None:
    used = TokenUse()
    ask(used, prompt=30, samples=4, tokens=50)
    assert (used.prefill, used.sample, used.train, used.open) == (30, 50, 0, 0)


def test_a_canceled_sample_counts_as_the_mean_of_the_others_or_the_most() -> None:
    used = TokenUse()
    with pytest.raises(asyncio.CancelledError):
        ask(used, prompt=10, samples=2, tokens=None)
    assert (used.prefill, used.sample) == (10, 200)
    ask(used, prompt=10, samples=2, tokens=14)
    with pytest.raises(asyncio.CancelledError):
        ask(used, prompt=10, samples=3, tokens=None)
    assert (used.prefill, used.sample, used.open) == (30, 200 + 14 + 3 * 7, 0)


def test_a_refused_request_costs_nothing() -> None:
    used = TokenUse()
    with pytest.raises(ValueError, match="refused"), used.sampling(10, 2, 100):
        raise ValueError("refused")
    assert used == TokenUse()


def test_open_samples_are_expected_to_be_as_long_as_the_others() -> None:
    used = TokenUse()
    ask(used, prompt=1, samples=2, tokens=20)
    with used.sampling(1, 5, 100) as answered_with:
        assert used.open_tokens == 50
        answered_with(5)
    assert used.open_tokens == 0
