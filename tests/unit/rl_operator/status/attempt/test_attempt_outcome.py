"""What a run that is over says of its weights."""

from typing import Any

import pytest

from rl_contract.status_metrics import EvaluatedFigure, RunMetrics
from rl_contract.trainer_messages import BestCheckpoint
from rl_operator.api.status_fields import Progress
from rl_operator.status.attempt.attempt_outcome import done_sentence, next_run_sentence, success_sentence

DONE = "All 40 steps are trained and the weights are saved."


def best(accuracy: float, low: float) -> BestCheckpoint:
    return BestCheckpoint(
        step=5,
        held_out=EvaluatedFigure(value=accuracy, low=low),
        state_path="tinker://r/w",
        sampler_path="tinker://r/s",
    )


def metrics(**known: Any) -> RunMetrics:
    return RunMetrics(**known)


@pytest.mark.parametrize(
    ("last", "of_best", "said"),
    [
        (
            metrics(held_out=EvaluatedFigure(value=0.18, high=0.22, step=40)),
            best(0.56, 0.5),
            "step 5 are better: held-out 0.56, and 0.18 after step 40.",
        ),
        (
            metrics(held_out=EvaluatedFigure(value=0.18, high=0.22)),
            best(0.56, 0.5),
            "held-out 0.56, and 0.18 in the last evaluation.",
        ),
        (metrics(held_out=EvaluatedFigure(value=0.5, high=0.55, step=40)), best(0.56, 0.5), ""),
        (metrics(), best(0.56, 0.5), ""),
        (None, None, ""),
    ],
    ids=["worse", "worse, of an unknown step", "maybe by chance", "not evaluated", "nothing is known"],
)
def test_a_success_names_better_weights(last: RunMetrics | None, of_best: BestCheckpoint | None, said: str) -> None:
    sentence = success_sentence(done_sentence(Progress(step=40, total_steps=40, percent=100)), last, of_best)
    assert sentence.startswith(DONE)
    assert said in sentence
    assert (sentence == DONE) is (said == "")


def test_a_success_before_the_last_step_says_why() -> None:
    why = "held-out 0.97 of step 38 reached trainer.early_stopping.stop_at 0.95"
    done = done_sentence(Progress(step=40, total_steps=200, percent=20, stopped_early=why))
    assert success_sentence(done, None, None) == (
        "Stopped early at step 40: held-out 0.97 of step 38 reached trainer.early_stopping.stop_at 0.95."
        " The weights are saved."
    )


@pytest.mark.parametrize(
    ("first", "of_best", "said"),
    [
        (0.5, best(0.56, 0.5), "Or start from the best weights, of step 5 (held-out 0.56; status.best)."),
        (0.59, best(0.0, 0.0), "Start a new run from the beginning."),
        (0.59, None, "Start a new run from the beginning."),
        (None, best(0.56, 0.5), "Start a new run from the beginning."),
    ],
    ids=["better than the first", "worse than the first", "none", "without a first"],
)
def test_weights_that_diverged_are_not_recommended(first: float | None, of_best: Any, said: str) -> None:
    assert (
        next_run_sentence(
            "Diverged", 5, metrics(baseline=None if first is None else EvaluatedFigure(value=first)), of_best
        )
        == said
    )


def test_other_failures_are_continued_from_the_checkpoint() -> None:
    assert "The checkpoint of step 5 is kept" in next_run_sentence("TrainerFailed", 5, None, None)
    assert next_run_sentence("TrainerFailed", None, None, None) == "Fix that and start a new run."
