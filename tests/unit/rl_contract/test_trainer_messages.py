"""The trainer's messages: what is left out to save space can be told again, and unknown fields break nobody."""

import math

import pytest

from rl_contract.status_metrics import EvaluatedFigure, RunMetrics
from rl_contract.trainer_messages import (
    BestCheckpoint,
    EvaluatedFigures,
    ItemAccount,
    ResultBest,
    TrainerResult,
    TrainerStatus,
)

BEST = BestCheckpoint(
    step=5, held_out=EvaluatedFigure(value=0.9, low=0.8), state_path="state-5", sampler_path="sampler-5"
)


def test_the_best_weights_keep_paths_that_are_not_the_results_own() -> None:
    result = TrainerResult(outcome="running", state_path="state-5", sampler_path="x", best=ResultBest.of(BEST))
    wire = result.compact.to_wire()
    assert (wire["best"].get("statePath"), wire["best"]["samplerPath"]) == (None, "sampler-5")
    assert TrainerResult.model_validate(wire).best_checkpoint == BEST


def test_the_best_weights_are_unknown_without_a_path() -> None:
    best = ResultBest.of(BEST).with_changes(state_path=None)
    assert TrainerResult(outcome="running", best=best).best_checkpoint is None


def test_a_newer_writer_does_not_break_an_older_reader() -> None:
    wire = TrainerStatus(step=3, metrics=RunMetrics(loss=0.5)).to_wire() | {"novelty": {"a": 1}}
    assert TrainerStatus.model_validate(wire) == TrainerStatus(step=3, metrics=RunMetrics(loss=0.5))


def test_figures_without_room_are_counted() -> None:
    rows = tuple(EvaluatedFigure(metric=f"eval/set{n}", value=0.5, samples=8) for n in range(3))
    shorter = EvaluatedFigures(step=4, figures=rows, more=2).shorter
    assert shorter == EvaluatedFigures(step=4, figures=rows[:2], more=3)
    assert EvaluatedFigures(step=4, figures=rows[:1]).shorter is None


def test_better_is_more_than_noise() -> None:
    assert BEST.is_better_than(RunMetrics(held_out=EvaluatedFigure(value=0.7, high=0.79)))
    assert not BEST.is_better_than(RunMetrics(held_out=EvaluatedFigure(value=0.7, high=0.81)))
    assert not BEST.is_better_than(RunMetrics())


@pytest.mark.parametrize("odd", [{"metric": "eval/odd", "value": None}, {"metric": "eval/odd", "value": math.nan}, 7])
def test_what_is_no_figure_is_counted_and_costs_no_other(odd: object) -> None:
    told = {"step": 3, "figures": [odd, {"metric": "eval/b", "value": 0.5}], "more": 2}
    found = TrainerStatus.model_validate({"step": 3, "evaluation": told}).evaluation
    assert found == EvaluatedFigures(step=3, figures=(EvaluatedFigure(metric="eval/b", value=0.5),), more=3)


ITEMS = ItemAccount(seen=540, trained=480, dropped={"too_long": 12, "equal": 40, "raised": 0}, under_way=8)


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (ITEMS, "540 seen = 480 trained + 52 dropped (40 equal, 12 too_long) + 8 under way"),
        (
            ItemAccount(seen=5, trained=0, dropped={}, under_way=5, again=2, epoch_size=4),
            "5 seen = 0 trained + 0 dropped + 5 under way; 2 dealt again; epoch 1.25 of 4 items",
        ),
    ],
)
def test_the_items_are_an_account(items: ItemAccount, text: str) -> None:
    assert items.text == text
