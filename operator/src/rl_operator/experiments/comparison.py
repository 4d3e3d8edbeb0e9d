"""Which of two runs is better, in words that name the evidence. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from rl_contract.status_metrics import EvaluatedFigure
from rl_operator.experiments.paired_difference import CHANCE, FEWEST, PairedDifference, paired_difference
from rl_operator.experiments.run_figures import UNSET, RunFigures, held_out_differences, setting_text

SHOWN_DIFFERENCES: Final = 3
"""Between held-out sets, in a sentence."""

Kind = Literal["better", "undecided", "no-figure", "no-interval", "different-sets", "different-figures"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on two runs, the higher figure first. `better`: the name of the better one; `difference`: of the
    first minus the second, on the items that both answered, if those are known.
    """

    kind: Kind
    runs: tuple[str, str]
    sentence: str
    better: str | None = None
    difference: PairedDifference | None = None

    def to_wire(self) -> dict[str, Any]:
        difference = self.difference.to_wire() if self.difference else None
        known = {"better": self.better, "difference": difference}
        said = {name: value for name, value in known.items() if value is not None}
        return {"kind": self.kind, "runs": list(self.runs), "sentence": self.sentence, **said}


def compare_runs(one: RunFigures, other: RunFigures, pairs: int = 1) -> Comparison:
    """By their newest held-out figures: paired by item where the answers to each item are known (`paired_difference`).
    `pairs`: of this many, chance alone may decide one at all in 5 of 100 cases.

    Else the higher one is better if the two 95 % intervals do not overlap: that is stricter than a test of the
    difference at 5 % (with intervals of equal width it is one at 0.6 %), whatever `pairs` is.
    """
    if one.held_out is None or other.held_out is None:
        return _without_figure(one, other)
    if not comparable(one, other):
        return _unlike(one, other)
    found = paired_difference(one.answers, other.answers, CHANCE / pairs)
    if (found.value if found else one.held_out.value - other.held_out.value) < 0:
        return compare_runs(other, one, pairs)
    kind, why = _by_items(found, pairs) if found else _by_intervals(one.held_out, other.held_out)
    figure = f"held-out{one.held_out.origin or other.held_out.origin} {one.held_out.text}"
    said = f"{one.name} is better: {figure} against" if kind == "better" else f"not decided: {figure} of {one.name} and"
    rest = ("" if found else why_unpaired(one, other)) + so_far(one, other)
    sentence = f"{said} {other.held_out.text} of {other.name}; {why}{rest}"
    return Comparison(kind, (one.name, other.name), sentence, one.name if kind == "better" else None, found)


def _by_items(found: PairedDifference, pairs: int) -> tuple[Kind, str]:
    family = f" (95 % over all {pairs} pairs)" if pairs > 1 else ""
    test = "" if found.p is None else f" (McNemar's p {found.p:.2g})"
    on = f"on the same {found.items} items the difference is {found.text}{family}{test}"
    if found.decided:
        return "better", on
    needed = found.items_needed and f"; if it is real, about {_rounded(found.items_needed):,} items would show it"
    return "undecided", f"{on}, which may be chance{needed or ''}"


def _by_intervals(high: EvaluatedFigure, low: EvaluatedFigure) -> tuple[Kind, str]:
    if high.low is None or low.high is None:
        return "no-interval", "without an interval of each, nothing says whether the difference is chance"
    return ("better", "the intervals are apart") if high.low > low.high else ("undecided", "the intervals overlap")


def comparable(one: RunFigures, other: RunFigures) -> bool:
    """Whether their figures are of one held-out set, one metric and one temperature; of one set, an unknown temperature
    is any.
    """
    return one.held_out_set == other.held_out_set and not list(_how_they_differ(one, other))


def _how_they_differ(one: RunFigures, other: RunFigures) -> Iterator[str]:
    """Besides the set: by what was counted, and how it was sampled."""
    first, second = one.held_out, other.held_out
    if first is None or second is None:
        return
    if first.metric != second.metric:
        yield f"the figure is {first.metric} in {one.name} and {second.metric} in {other.name}"
    if None not in (temperatures := (first.temperature, second.temperature)) and temperatures[0] != temperatures[1]:
        yield f"the temperature is {temperatures[0]:g} in {one.name} and {temperatures[1]:g} in {other.name}"


def why_unpaired(*rows: RunFigures) -> str:
    """` (not paired by item: …)`; empty if nobody has looked at their answers."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if not row.answers and row.why_unpaired:
            names.setdefault(row.why_unpaired, []).append(row.name)
    why = [f"{', '.join(each)}: {reason}" for reason, each in names.items()]
    if all(row.answers for row in rows):
        common = len(set[str].intersection(*(set(row.answers) for row in rows)))
        why = [f"{common} held-out items are in all of them, and {FEWEST} are needed"]
    return f" (not paired by item: {'; '.join(why)})" if why else ""


def _rounded(number: int) -> int:
    """To two digits, upwards: more would pretend to be exact."""
    unit = int("1" + "0" * max(0, len(str(number)) - 2))
    return -(-number // unit) * unit


def _without_figure(one: RunFigures, other: RunFigures) -> Comparison:
    missing = [
        f"{row.name} has no held-out figure ({row.without_figure})" for row in (one, other) if row.without_figure
    ]
    return Comparison("no-figure", (one.name, other.name), f"no verdict: {'; '.join(missing)}")


def _unlike(one: RunFigures, other: RunFigures) -> Comparison:
    """Of other sets, or figures of another kind."""
    names = held_out_differences(one.settings, other.settings) if one.settings and other.settings else ()
    if "environment" in names:  # then its fields differ, too
        names = ("environment",)
    parts = [
        f"{name} is {setting_text(one.settings.get(name, UNSET))} in {one.name} and "
        f"{setting_text(other.settings.get(name, UNSET))} in {other.name}"
        for name in names[:SHOWN_DIFFERENCES]
    ]
    more = [f"{len(names) - SHOWN_DIFFERENCES} more"] if len(names) > SHOWN_DIFFERENCES else []
    how = list(_how_they_differ(one, other))
    why = "; ".join([*parts, *more, *how]) or "the environments or eval settings differ"
    same_set = one.held_out_set == other.held_out_set
    what = "figures of different kinds" if same_set else "different held-out sets"
    sentence = f"no verdict: {what}: {why}, so the figures do not compare"
    return Comparison("different-figures" if same_set else "different-sets", (one.name, other.name), sentence)


def so_far(*rows: RunFigures) -> str:
    """Which of them had not ended when their figures were read; empty if all had."""
    open_ones = [
        f"{row.name} {'was deleted at' if row.gone else f'is {row.phase},'} step {row.steps}"
        for row in rows
        if not row.finished
    ]
    return f" (so far: {', '.join(open_ones)})" if open_ones else ""
