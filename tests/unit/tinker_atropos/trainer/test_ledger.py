import numpy as np

from tinker_atropos.trainer.ledger import SAME_KEY, UNKNOWN_STEP, Ledger, Sampled, generated_spans
from tinker_atropos.trainer.rollouts import Rollout

PROMPT, OUTPUT = np.array([1, 2]), np.array([3, 4])
UNREPORTED = np.array([np.nan, np.nan])


def rollout(tokens: list[int], generated: list[int], logprobs: list[float] | None = None) -> Rollout:
    logprobs_T = np.full(len(tokens), np.nan) if logprobs is None else np.array(logprobs)
    return Rollout(np.array(tokens), np.array(generated, bool), logprobs_T, score=1.0)


def test_a_rollout_finds_its_logprobs_and_policy_step_by_its_ids() -> None:
    ledger = Ledger()
    ledger.record(PROMPT, OUTPUT, Sampled(np.array([-0.1, -0.2]), policy_step=7))
    attribution = ledger.attribute(rollout([1, 2, 3, 4], [0, 0, 1, 1]))
    np.testing.assert_array_equal(attribution.logprobs_T, [np.nan, np.nan, -0.1, -0.2])
    assert attribution.policy_step_T.tolist() == [UNKNOWN_STEP, UNKNOWN_STEP, 7, 7]


def test_logprobs_that_the_environment_sent_are_kept_and_gaps_are_filled() -> None:
    ledger = Ledger()
    ledger.record(PROMPT, OUTPUT, Sampled(np.array([-0.1, -0.2]), policy_step=7))
    attribution = ledger.attribute(rollout([1, 2, 3, 4], [0, 0, 1, 1], [np.nan, np.nan, -0.9, np.nan]))
    np.testing.assert_array_equal(attribution.logprobs_T[2:], [-0.9, -0.2])


def test_every_turn_of_a_conversation_is_looked_up_with_all_that_came_before_it() -> None:
    ledger = Ledger()
    ledger.record(np.array([1]), np.array([2]), Sampled(np.array([-0.1]), policy_step=3))
    ledger.record(np.array([1, 2, 9]), np.array([4, 5]), Sampled(np.array([-0.4, -0.5]), policy_step=4))
    attribution = ledger.attribute(rollout([1, 2, 9, 4, 5], [0, 1, 0, 1, 1]))
    np.testing.assert_array_equal(attribution.logprobs_T, [np.nan, -0.1, np.nan, -0.4, -0.5])
    assert attribution.policy_step_T.tolist() == [UNKNOWN_STEP, 3, UNKNOWN_STEP, 4, 4]


def test_an_output_sampled_twice_is_told_apart_by_its_logprobs() -> None:
    ledger = Ledger()
    for step, logprob in ((1, -0.1), (2, -0.2), (3, -0.3)):
        ledger.record(PROMPT, OUTPUT, Sampled(np.array([logprob, logprob]), policy_step=step))
    assert ledger.find(PROMPT, OUTPUT, np.array([-0.2, -0.2])).policy_step == 2
    assert ledger.find(PROMPT, OUTPUT, UNREPORTED).policy_step == 3


def test_unknown_ids_have_no_record() -> None:
    ledger = Ledger()
    ledger.record(PROMPT, OUTPUT, Sampled(np.array([-0.1, -0.2]), policy_step=1))
    assert ledger.find(np.array([1, 2, 3]), np.array([4]), np.array([np.nan])) is None  # same ids, split elsewhere
    assert np.isnan(ledger.attribute(rollout([1, 2, 3], [0, 0, 1])).logprobs_T).all()


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    ledger = Ledger(capacity=3)
    for token in range(5):
        ledger.record(PROMPT, np.array([token]), Sampled(np.array([-1.0]), policy_step=token))
    assert len(ledger) == 3
    found = [ledger.find(PROMPT, np.array([token]), np.array([np.nan])) for token in range(5)]
    assert [record and record.policy_step for record in found] == [None, None, 2, 3, 4]


def test_one_output_sampled_again_and_again_keeps_the_newest() -> None:
    ledger = Ledger()
    for step in range(SAME_KEY + 3):
        ledger.record(PROMPT, OUTPUT, Sampled(np.array([-step, -step], float), policy_step=step))
    assert ledger.find(PROMPT, OUTPUT, UNREPORTED).policy_step == SAME_KEY + 2
    assert ledger.find(PROMPT, OUTPUT, np.array([0.0, 0.0])).policy_step == 3


def test_spans() -> None:
    table = {"": [], "0": [], "1": [(0, 1)], "0110": [(1, 3)], "10111": [(0, 1), (2, 5)]}
    for mask, spans in table.items():
        assert list(generated_spans(np.array([bit == "1" for bit in mask], bool))) == spans
