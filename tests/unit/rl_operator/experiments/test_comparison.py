"""The verdict on two runs: what it says, and what it rests on."""

import math
import random
from statistics import NormalDist

import pytest
from tests.unit.rl_operator.experiments.rows import held_out, row

from rl_contract.confidence_intervals import Z_95, wilson_interval
from rl_contract.status_metrics import EvaluatedFigure
from rl_operator.experiments.comparison import compare_runs, samples_needed
from rl_operator.experiments.run_figures import RunFigures

CLEAR = (row("a", 0.81), row("b", 0.94))


@pytest.mark.parametrize("rows", [CLEAR, CLEAR[::-1]])
def test_the_higher_one_is_better_if_the_intervals_are_apart(rows: tuple[RunFigures, RunFigures]) -> None:
    found = compare_runs(*rows)
    assert (found.kind, found.better, found.samples_needed) == ("better", "b", None)
    assert found.sentence == (
        "b is better: held-out 0.940 [0.910, 0.970] against 0.810 [0.780, 0.840] of a; the intervals are apart"
    )


@pytest.mark.parametrize(
    ("value", "kind"), [(0.87, "undecided"), (0.8699, "undecided"), (0.8701, "better"), (0.81, "undecided")]
)
def test_intervals_that_touch_overlap(value: float, kind: str) -> None:
    assert compare_runs(row("a", 0.81), row("b", value)).kind == kind


def test_overlap_says_how_many_samples_would_decide() -> None:
    found = compare_runs(row("a", 0.80), row("b", 0.83))
    assert (found.kind, found.better) == ("undecided", None)
    assert found.samples_needed == samples_needed(held_out(0.80), held_out(0.83))
    assert found.sentence == (
        "not decided: held-out 0.830 [0.800, 0.860] of b and 0.800 [0.770, 0.830] of a; the intervals overlap; "
        "if the difference is real, about 3,400 samples of each would show it (now 500)"
    )


def test_different_numbers_of_samples_are_both_named() -> None:
    other = row("b", held_out=held_out(0.83, 0.02, 1000))
    assert "(now 1000 and 500)" in compare_runs(row("a", 0.80), other).sentence


def test_equal_figures_need_no_number() -> None:
    found = compare_runs(row("a", 0.80), row("b", 0.80))
    assert found.samples_needed is None
    assert found.sentence.endswith("the intervals overlap, and the figures are equal")


@pytest.mark.parametrize(
    ("one", "other"), [(row("a", 0.8), row("b")), (row("b"), row("a", 0.8)), (row("b", phase="Failed"), row("a", 0.8))]
)
def test_without_a_figure_there_is_no_verdict(one: RunFigures, other: RunFigures) -> None:
    found = compare_runs(one, other)
    assert (found.kind, found.better) == ("no-figure", None)
    assert found.sentence.startswith("no verdict: b has no held-out figure (it ended without one")


def test_a_score_without_an_interval_is_not_judged() -> None:
    found = compare_runs(row("a", held_out=held_out(12.0, None)), row("b", held_out=held_out(13.5, None)))
    assert (found.kind, found.better) == ("no-interval", None)
    assert "13.500 of b and 12.000 of a; without an interval of each" in found.sentence


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (({"config.eval_items": 250}, {"config.eval_items": 100}), "config.eval_items is 250 in a and 100 in b"),
        (({}, {"config.eval_items": 100}), "the environments or eval settings differ"),
    ],
)
def test_figures_of_different_sets_do_not_compare(settings: tuple[dict[str, int], dict[str, int]], said: str) -> None:
    one = row("a", 0.1, held_out_set="1", settings=settings[0])
    other = row("b", 0.9, held_out_set="2", settings=settings[1])
    found = compare_runs(one, other)
    assert (found.kind, found.better) == ("different-sets", None)
    assert found.sentence == f"no verdict: different held-out sets: {said}, so the figures do not compare"


def test_a_run_that_still_trains_is_judged_so_far() -> None:
    training = row("b", 0.94, phase="Running", step=3, total_steps=40)
    assert compare_runs(row("a", 0.81), training).sentence.endswith(
        "; the intervals are apart (so far: b is Running, step 3/40)"
    )


def test_the_wire_form_says_what_is_known() -> None:
    assert compare_runs(*CLEAR).to_wire()["better"] == "b"
    assert "samplesNeeded" not in compare_runs(*CLEAR).to_wire()
    assert compare_runs(row("a", 0.80), row("b", 0.83)).to_wire()["samplesNeeded"] > 3000


@pytest.mark.parametrize("pair", [(0.5, 0.6), (0.8, 0.85), (0.9, 0.97)])
def test_with_so_many_samples_the_intervals_are_apart_in_four_of_five_cases(pair: tuple[float, float]) -> None:
    """The formula against samples that are drawn, with the interval that a status has."""
    needed = samples_needed(*(_drawn(round(share * 500), 500) for share in pair))
    assert needed is not None
    rng = random.Random(0)
    tries = 400
    apart = 0
    for _ in range(tries):
        low, high = (_drawn(_binomial(rng, needed, share), needed) for share in pair)
        apart += (high.low or 0) > (low.high or 1)
    assert 0.72 < apart / tries < 0.88


def _drawn(correct: int, n: int) -> EvaluatedFigure:
    low, high = wilson_interval(correct, n)
    return EvaluatedFigure(value=correct / n, low=low, high=high, samples=n)


def _binomial(rng: random.Random, n: int, share: float) -> int:
    return sum(rng.random() < share for _ in range(n))


@pytest.mark.parametrize(
    "figures", [(held_out(0.5), held_out(0.6, None)), (held_out(0.5, n=None), held_out(0.6)), (held_out(0.5),) * 2]
)
def test_what_is_not_known_gives_no_number(figures: tuple[EvaluatedFigure, EvaluatedFigure]) -> None:
    assert samples_needed(*figures) is None


def test_apart_is_stricter_than_a_test_as_the_docstring_says() -> None:
    assert 2 * (1 - NormalDist().cdf(Z_95 * math.sqrt(2))) == pytest.approx(0.0056, abs=2e-4)


def test_of_different_environments_nothing_else_is_named() -> None:
    settings = ({"environment": "a", "config.x": 1}, {"environment": "b", "config.y": 2})
    rows = [row(name, 0.5, held_out_set=name, settings=each) for name, each in zip("pq", settings, strict=True)]
    assert "sets: environment is a in p and b in q, so the figures" in compare_runs(*rows).sentence


def test_of_many_and_long_differences_some_are_said() -> None:
    settings = [{f"config.f{at}": f"{name}\x1b[2J" * 99 for at in range(5)} for name in "pq"]
    rows = [row(name, 0.5, held_out_set=name, settings=each) for name, each in zip("pq", settings, strict=True)]
    sentence = compare_runs(*rows).sentence
    assert "; 2 more, so the figures do not compare" in sentence
    assert sentence.isprintable()
    assert len(sentence) < 600
