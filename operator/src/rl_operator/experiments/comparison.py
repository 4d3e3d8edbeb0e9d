"""Which of two runs is better, in words that name the evidence. Pure."""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from rl_contract.confidence_intervals import Z_95
from rl_contract.status_metrics import EvaluatedFigure
from rl_operator.experiments.run_figures import UNSET, RunFigures, held_out_differences, setting_text

Z_POWER: Final = 0.841621
"""Its one-sided 80 % quantile: a number of samples is one with which a real difference is seen in 4 of 5 cases."""

SHOWN_DIFFERENCES: Final = 3
"""Between held-out sets, in a sentence."""

Kind = Literal["better", "undecided", "no-figure", "no-interval", "different-sets"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on two runs. `better`: the name of the better one; `samples_needed`: of each run, to decide it."""

    kind: Kind
    runs: tuple[str, str]
    sentence: str
    better: str | None = None
    samples_needed: int | None = None

    def to_wire(self) -> dict[str, Any]:
        known = {"better": self.better, "samplesNeeded": self.samples_needed}
        said = {name: value for name, value in known.items() if value is not None}
        return {"kind": self.kind, "runs": list(self.runs), "sentence": self.sentence, **said}


def compare_runs(one: RunFigures, other: RunFigures) -> Comparison:
    """By their newest held-out figures. The higher one is better if the two 95 % intervals do not overlap: that is
    stricter than a test of the difference at 5 % (with intervals of equal width it is one at 0.6 %), so that picking
    the best of several runs does not make chance a winner.
    """
    if one.held_out is None or other.held_out is None:
        return _without_figure(one, other)
    if one.held_out_set != other.held_out_set:
        return _different_sets(one, other)
    high, low = (one, other) if one.held_out.value >= other.held_out.value else (other, one)
    return _judged(high, low, one.held_out, other.held_out, (one.name, other.name))


def _judged(
    high: RunFigures, low: RunFigures, first: EvaluatedFigure, second: EvaluatedFigure, runs: tuple[str, str]
) -> Comparison:
    better, worse = (first, second) if first.value >= second.value else (second, first)
    open_ones = so_far(high, low)
    if better.low is None or worse.high is None:
        sentence = (
            f"not decided: held-out {better.text} of {high.name} and {worse.text} of {low.name}; without an interval "
            f"of each, nothing says whether the difference is chance{open_ones}"
        )
        return Comparison("no-interval", runs, sentence)
    if better.low > worse.high:
        sentence = (
            f"{high.name} is better: held-out {better.text} against {worse.text} of {low.name}; "
            f"the intervals are apart{open_ones}"
        )
        return Comparison("better", runs, sentence, better=high.name)
    needed = samples_needed(better, worse)
    sentence = (
        f"not decided: held-out {better.text} of {high.name} and {worse.text} of {low.name}; the intervals overlap"
        f"{_needed(needed, better, worse)}{open_ones}"
    )
    return Comparison("undecided", runs, sentence, samples_needed=needed)


def samples_needed(one: EvaluatedFigure, other: EvaluatedFigure) -> int | None:
    """How many held-out samples of each run would set the two intervals apart in 4 of 5 cases, if the difference is as
    large as it seems. None: the figures are equal, or have no intervals or numbers of samples.

    With d the difference, and s the deviation of one sample, which is the interval's half width times sqrt(n) / z:
    intervals of n samples are apart if the observed difference is above z (s1 + s2) / sqrt(n) (Schenker and Gentleman,
    On Judging the Significance of Differences by Examining the Overlap Between Confidence Intervals, The American
    Statistician 55, 2001). It is normal with the mean d and the variance (s1² + s2²) / n, so that happens with a
    probability of 80 % from

        n = ((z (s1 + s2) + z_power sqrt(s1² + s2²)) / d)²

    on: the usual power analysis of two proportions (Fleiss, Levin and Paik, Statistical Methods for Rates and
    Proportions, 2003, chapter 4) with the overlap in the place of a test. The intervals count samples of an item as
    fewer ones, so the deviations do, too.
    """
    deviations = _deviation(one), _deviation(other)
    difference = abs(one.value - other.value)
    if deviations[0] is None or deviations[1] is None or not difference:
        return None
    apart = Z_95 * (deviations[0] + deviations[1]) + Z_POWER * math.hypot(deviations[0], deviations[1])
    return math.ceil((apart / difference) ** 2)


def _deviation(figure: EvaluatedFigure) -> float | None:
    if figure.low is None or figure.high is None or not figure.samples:
        return None
    return (figure.high - figure.low) / 2 * math.sqrt(figure.samples) / Z_95


def _needed(needed: int | None, one: EvaluatedFigure, other: EvaluatedFigure) -> str:
    if needed is None:
        return "" if one.value != other.value else ", and the figures are equal"
    now = f"{one.samples}" if one.samples == other.samples else f"{one.samples} and {other.samples}"
    return f"; if the difference is real, about {_rounded(needed):,} samples of each would show it (now {now})"


def _rounded(number: int) -> int:
    """To two digits, upwards: more would pretend to be exact."""
    unit = int("1" + "0" * max(0, len(str(number)) - 2))
    return -(-number // unit) * unit


def _without_figure(one: RunFigures, other: RunFigures) -> Comparison:
    missing = [
        f"{row.name} has no held-out figure ({row.without_figure})" for row in (one, other) if row.without_figure
    ]
    return Comparison("no-figure", (one.name, other.name), f"no verdict: {'; '.join(missing)}")


def _different_sets(one: RunFigures, other: RunFigures) -> Comparison:
    names = held_out_differences(one.settings, other.settings) if one.settings and other.settings else ()
    if "environment" in names:  # then its fields differ, too
        names = ("environment",)
    parts = [
        f"{name} is {setting_text(one.settings.get(name, UNSET))} in {one.name} and "
        f"{setting_text(other.settings.get(name, UNSET))} in {other.name}"
        for name in names[:SHOWN_DIFFERENCES]
    ]
    more = [f"{len(names) - SHOWN_DIFFERENCES} more"] if len(names) > SHOWN_DIFFERENCES else []
    why = "; ".join([*parts, *more]) or "the environments or eval settings differ"
    sentence = f"no verdict: different held-out sets: {why}, so the figures do not compare"
    return Comparison("different-sets", (one.name, other.name), sentence)


def so_far(*rows: RunFigures) -> str:
    """Which of them had not ended when their figures were read; empty if all had."""
    open_ones = [
        f"{row.name} {'was deleted at' if row.gone else f'is {row.phase},'} step {row.steps}"
        for row in rows
        if not row.finished
    ]
    return f" (so far: {', '.join(open_ones)})" if open_ones else ""
