import numpy as np

from tinker_atropos import wire
from tinker_atropos.trainer.rollouts import Group


def test_masks_mark_what_was_generated_and_a_positive_logprob_means_unknown() -> None:
    group = wire.Group(
        tokens=[[5, 6, 7, 8], [5, 6]],
        masks=[[-100, -100, 7, 8], [-100, 6]],
        scores=[1.0, 0.0],
        inference_logprobs=[[1.0, 1.0, -0.5, 1.0], [1.0, -2.0]],
    )
    first, second = Group.from_wire(group).rollouts_G
    assert first.generated_T.tolist() == [False, False, True, True]
    np.testing.assert_array_equal(first.logprobs_T, [np.nan, np.nan, -0.5, np.nan])
    np.testing.assert_array_equal(second.logprobs_T, [np.nan, -2.0])
    assert Group.from_wire(group).scores_G.tolist() == [1.0, 0.0]


def test_logprobs_that_do_not_fit_the_tokens_count_as_not_sent() -> None:
    group = wire.Group(tokens=[[5, 6, 7]], masks=[[-100, 6, 7]], scores=[1.0], inference_logprobs=[[-0.5]])
    assert np.isnan(Group.from_wire(group).rollouts_G[0].logprobs_T).all()


def test_logprobs_are_optional() -> None:
    group = wire.Group(tokens=[[5, 6]], masks=[[-100, 6]], scores=[1.0])
    assert np.isnan(Group.from_wire(group).rollouts_G[0].logprobs_T).all()
