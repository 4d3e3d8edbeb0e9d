import numpy as np
from numpy.typing import NDArray

from tinker_atropos.trainer.data.datums import Datum, TrainingBatch
from tinker_atropos.trainer.reporting.trackers.tracker import MAX_TEXT, sample_rows


def datum(score: float, advantage: float, length: int = 5) -> Datum:
    """Tokens 0, 1, 2, … of which the first two are the prompt."""
    trained_T = np.arange(1, length) >= 2
    return Datum(
        input_T=np.arange(length - 1),
        target_T=np.arange(1, length),
        logprobs_T=np.zeros(length - 1),
        advantages_T=np.where(trained_T, advantage, 0.0),
        trained_T=trained_T,
        policy_step_T=np.where(trained_T, 7, -1),
        distilled_T=None,
        score=score,
        group=0,
        rollout=0,
    )


def decode(tokens_T: NDArray[np.int64]) -> str:
    return "".join(chr(ord("a") + token % 26) for token in tokens_T.tolist())


def test_a_row_separates_prompt_and_completion() -> None:
    assert sample_rows(3, TrainingBatch(datums=[datum(1.0, 0.5)]), decode) == [(3, "ab", "cde", 1.0, 0.5, 7)]


def test_rows_are_spread_from_the_lowest_to_the_highest_score() -> None:
    batch = TrainingBatch(datums=[datum(float(score), 0.0) for score in (5, 1, 4, 2, 3)])
    assert [row[3] for row in sample_rows(1, batch, decode, count=3)] == [1.0, 3.0, 5.0]
    assert [row[3] for row in sample_rows(1, batch, decode, count=9)] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_step_without_a_gradient_has_no_rows() -> None:
    assert sample_rows(1, TrainingBatch(), decode) == []


def test_a_long_text_keeps_both_ends() -> None:
    (row,) = sample_rows(1, TrainingBatch(datums=[datum(0.0, 0.0, MAX_TEXT * 2)]), decode)
    assert len(row[2]) == MAX_TEXT + 3
    assert row[2][:3] == "cde"
    assert row[2][-1] == decode(np.array([MAX_TEXT * 2 - 1]))
