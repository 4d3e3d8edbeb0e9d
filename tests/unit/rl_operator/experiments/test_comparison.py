"""The verdict on two runs: what it says, and what it rests on."""

import math
from statistics import NormalDist
from typing import Any

import pytest
from tests.unit.rl_operator.experiments.rows import answering, held_out, row

from rl_contract.confidence_intervals import Z_95
from rl_operator.experiments.comparison import compare_runs
from rl_operator.experiments.run_figures import RunFigures

CLEAR = (row("a", 0.81), row("b", 0.94))


@pytest.mark.parametrize("rows", [CLEAR, CLEAR[::-1]])
def test_the_higher_one_is_better_if_the_intervals_are_apart(rows: tuple[RunFigures, RunFigures]) -> None:
    found = compare_runs(*rows)
    assert (found.kind, found.better, found.runs) == ("better", "b", ("b", "a"))
    assert found.sentence == (
        "b is better: held-out 0.940 [0.910, 0.970] against 0.810 [0.780, 0.840] of a; the intervals are apart"
    )


@pytest.mark.parametrize(
    ("value", "kind"), [(0.87, "undecided"), (0.8699, "undecided"), (0.8701, "better"), (0.81, "undecided")]
)
def test_intervals_that_touch_overlap(value: float, kind: str) -> None:
    assert compare_runs(row("a", 0.81), row("b", value)).kind == kind


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
        (({"config.seed": 1}, {"config.seed": 2}), "config.seed is 1 in a and 2 in b"),
        (({}, {"config.seed": 2}), "the environments or eval settings differ"),
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
    assert {"better", "difference"}.isdisjoint(compare_runs(row("a", 0.80), row("b", 0.83)).to_wire())


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


HARD = [1] * 60 + [0] * 40
"""Of 100 items; another run gets ten more of them right, which its own interval would never show."""


def test_runs_are_paired_by_item() -> None:
    one, other = answering("a", HARD), answering("b", [1] * 70 + [0] * 30)
    found = compare_runs(one, other)
    assert (found.kind, found.better) == ("better", "b")
    assert found.difference is not None
    assert (found.difference.value, found.difference.items) == (pytest.approx(0.1), 100)
    assert found.difference.p == pytest.approx(2 / 2**10)
    assert found.to_wire()["difference"]["low"] > 0
    assert found.sentence == (
        "b is better: held-out 0.700 [0.670, 0.730] against 0.600 [0.570, 0.630] of a; "
        f"on the same 100 items the difference is {found.difference.text} (McNemar's p 0.002)"
    )


def test_what_may_be_chance_says_how_many_items_would_show_it() -> None:
    found = compare_runs(answering("a", HARD), answering("b", [1] * 62 + [0] * 38))
    assert (found.kind, found.better) == ("undecided", None)
    assert found.difference is not None
    assert found.difference.items_needed is not None
    assert found.difference.items_needed > 300
    assert "which may be chance; if it is real, about " in found.sentence


@pytest.mark.parametrize(("pairs", "kind"), [(1, "better"), (3, "better"), (28, "undecided")])
def test_of_many_pairs_each_needs_more(pairs: int, kind: str) -> None:
    found = compare_runs(answering("a", HARD), answering("b", [1] * 70 + [0] * 30), pairs)
    assert found.kind == kind
    assert (f"95 % over all {pairs} pairs" in found.sentence) is (pairs > 1)


def test_another_number_of_items_and_samples_is_compared_on_the_common_ones() -> None:
    found = compare_runs(answering("a", HARD), answering("b", [4] * 50 + [0] * 25, samples=4))
    assert found.difference is not None
    assert (found.difference.items, found.difference.value, found.difference.p) == (
        75,
        pytest.approx(0.8 - 50 / 75),
        None,
    )


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (row("b", 0.94, unpaired="it kept nothing"), "b: it kept nothing"),
        (row("b", 0.94, gone=True), "b: it was deleted, and its answers with it"),
        (answering("b", [1] * 94 + [0] * 6).with_changes(answers={"another": (1.0,)}), "0 held-out items are in all"),
    ],
)
def test_what_cannot_be_paired_is_compared_by_intervals_and_says_why(other: RunFigures, why: str) -> None:
    found = compare_runs(answering("a", HARD), other)
    assert (found.kind, found.better, found.difference) == ("better", "b", None)
    assert f"the intervals are apart (not paired by item: {why}" in found.sentence


HOT = held_out(0.9).with_changes(temperature=1.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"temperature": 0.0}, "the temperature is 1 in a and 0 in b"),
        ({"metric": "eval/mean_reward"}, "the figure is eval/percent_correct in a and eval/mean_reward in b"),
    ],
)
def test_figures_of_another_temperature_or_metric_never_meet(change: dict[str, Any], said: str) -> None:
    one = answering("a", HARD).with_changes(held_out=HOT)
    found = compare_runs(one, one.with_changes(name="b", held_out=HOT.with_changes(**change)))
    assert (found.kind, found.difference) == ("different-figures", None)
    assert found.sentence == f"no verdict: figures of different kinds: {said}, so the figures do not compare"


def test_a_temperature_that_is_not_known_is_any_and_a_known_one_is_part_of_the_name() -> None:
    found = compare_runs(row("a", held_out=HOT), row("b", 0.8))
    assert found.sentence.startswith("a is better: held-out (temperature 1) 0.900 [")
