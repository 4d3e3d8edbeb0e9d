"""The scores of a prompt are the model's distribution, position by position."""

import numpy as np
import pytest
import torch

from tinker_service.model.engine import Engine
from tinker_service.model.sampling.sample_jobs import PromptScores, PromptScoring
from tinker_service.model.sampling.scoring import score_prompts

PROMPT = (5, 6, 7, 8, 9)


def score(engine: Engine, prompt: tuple[int, ...] = PROMPT, **wanted: object) -> PromptScores:
    """Next to a longer prompt, which must not matter."""
    jobs = [((1, 2, 3, 4, 5, 6, 7, 8), PromptScoring(logprobs=True)), (prompt, PromptScoring(**wanted))]
    return score_prompts(engine.model, None, jobs, 2**30)[1]


@pytest.fixture(scope="module")
def logprobs_TV(engine: Engine) -> np.ndarray:
    """Row t: what the model expects after t + 1 tokens."""
    with torch.no_grad():
        return engine.model.model(torch.tensor([PROMPT])).logits[0].log_softmax(-1).numpy()


def test_logprobs(engine: Engine, logprobs_TV: np.ndarray) -> None:
    expected = [np.nan, *(logprobs_TV[index, token] for index, token in enumerate(PROMPT[1:]))]
    np.testing.assert_allclose(score(engine, logprobs=True).logprobs, expected, atol=1e-6)
    last = score(engine, logprobs=True, last_n=2).logprobs
    np.testing.assert_allclose(last, [np.nan] * 3 + expected[-2:], atol=1e-6)


def test_top_k(engine: Engine, logprobs_TV: np.ndarray) -> None:
    top = score(engine, top_k=3).top
    assert top is not None
    assert np.isneginf(top.logprobs[0]).all()
    np.testing.assert_array_equal(top.tokens[1:], np.argsort(-logprobs_TV[:4])[:, :3])
    np.testing.assert_allclose(top.logprobs[1:], -np.sort(-logprobs_TV[:4])[:, :3], atol=1e-6)
    last = score(engine, top_k=3, last_n=1).top
    assert last is not None
    assert np.isneginf(last.logprobs[:4]).all()
    np.testing.assert_allclose(last.logprobs[4], top.logprobs[4], atol=1e-6)


def test_named_targets(engine: Engine, logprobs_TV: np.ndarray) -> None:
    targets = np.array([[1, 2], [3, -1], [-1, -1], [4, 500]])
    expected = np.where(targets < 0, 0, np.take_along_axis(logprobs_TV[:4], np.abs(targets), axis=1))
    np.testing.assert_allclose(score(engine, targets=targets).targets, expected, atol=1e-6)


def test_drawn_alternatives_follow_the_temperature_and_the_seed(engine: Engine, logprobs_TV: np.ndarray) -> None:
    drawn = score(engine, draws=4_000, seed=0, temperature=0.5).drawn
    assert drawn is not None
    tokens, logprobs = drawn
    np.testing.assert_allclose(logprobs, np.take_along_axis(logprobs_TV[:4], tokens, axis=1), atol=1e-6)
    sharpened = np.exp(2 * logprobs_TV[0])
    shares = np.bincount(tokens[0], minlength=len(sharpened)) / 4_000
    np.testing.assert_allclose(shares, sharpened / sharpened.sum(), atol=0.04)
    again = score(engine, draws=4_000, seed=0, temperature=0.5).drawn
    assert again is not None
    np.testing.assert_array_equal(again[0], tokens)
    greedy = score(engine, draws=2, temperature=0.0).drawn
    assert greedy is not None
    np.testing.assert_array_equal(greedy[0], np.argmax(logprobs_TV[:4], axis=1)[:, None].repeat(2, axis=1))


def test_one_token_has_nothing_before_it(engine: Engine) -> None:
    scores = score(engine, (5,), logprobs=True, top_k=2, targets=np.zeros((0, 2), np.int64), draws=2)
    assert scores.logprobs is not None
    assert np.isnan(scores.logprobs).tolist() == [True]
    assert scores.top is not None
    assert np.isneginf(scores.top.logprobs).all()
    assert scores.targets is not None
    assert scores.targets.shape == (0, 2)
    assert scores.drawn is not None
    assert scores.drawn[0].shape == (0, 2)
