"""The runs of an experiment from best to worst, and what remains of their order over seeds. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rl_operator.api.value_text import all_same, text_of
from rl_operator.experiments.comparison import Comparison, comparable, compare_runs, so_far, why_unpaired
from rl_operator.experiments.paired_difference import seeds_difference
from rl_operator.experiments.run_figures import RunFigures, setting_text


def ranked(rows: Sequence[RunFigures]) -> tuple[RunFigures, ...]:
    """By the held-out figure, those that compare with most others first; those without one follow, by their rollout
    reward; of equals, the older one is first.
    """
    without = sorted((row for row in rows if row.held_out is None), key=_place)
    return (*(row for alike in comparable_rows(rows) for row in alike), *without)


def comparable_rows(rows: Sequence[RunFigures]) -> list[list[RunFigures]]:
    """Those with a figure, by what their figures compare with; most first, and in each from best to worst."""
    found: list[list[RunFigures]] = []
    for row in sorted((row for row in rows if row.held_out is not None), key=_place):
        alike = next((each for each in found if comparable(each[0], row)), None)
        if alike is None:
            found.append([row])
        else:
            alike.append(row)
    return sorted(found, key=lambda alike: -len(alike))


def _place(row: RunFigures) -> tuple[bool, float, bool, float, str, str]:
    held_out = row.held_out.value if row.held_out else 0.0
    return (
        row.held_out is None,
        -held_out,
        row.rollout_reward is None,
        -(row.rollout_reward or 0.0),
        row.created,
        row.name,
    )


def verdicts(rows: Sequence[RunFigures]) -> tuple[Comparison, ...]:
    """The best run against each of the others, in their order; of runs whose figures do not compare with its own, the
    best one against the others of its kind, and why it does not compare.

    Whoever is compared with the fourth has picked the best of four: the six pairs share what chance may decide.
    """
    kinds = comparable_rows(rows)
    found = [
        compare_runs(alike[0], other, math.comb(place, 2))
        for alike in kinds
        for place, other in enumerate(alike[1:], 2)
    ]
    first, *others = ranked(rows)
    odd = [*(alike[0] for alike in kinds[1:]), *(row for row in others if row.held_out is None)]
    return (*found, *(compare_runs(first, other) for other in odd))


def swept_fields(rows: Sequence[RunFigures]) -> tuple[str, ...]:
    """In which the runs' grids differ, in the order in which they were given."""
    fields = list(dict.fromkeys(field for row in rows for field in row.swept))
    return tuple(field for field in fields if not all_same([row.swept.get(field, ...) for row in rows]))


def is_seed(field: str) -> bool:
    """`trainer.seed`, `config.item_seed`: a field that says which chance, and not what is trained."""
    last = field.rpartition(".")[2]
    return last == "seed" or last.endswith("_seed")


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """Runs that differ in their seeds only, and have held-out figures."""

    settings: Mapping[str, Any]
    rows: tuple[RunFigures, ...]

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)

    @property
    def figures(self) -> list[float]:
        return [row.held_out.value for row in self.rows if row.held_out]

    @property
    def mean(self) -> float:
        return fmean(self.figures)

    @property
    def label(self) -> str:
        """`learning_rate 0.001, loss ppo`."""
        values = ((field.rpartition(".")[2], value) for field, value in self.settings.items())
        return ", ".join(f"{name} {setting_text(value)}" for name, value in values)

    def to_wire(self) -> dict[str, Any]:
        figures = {"mean": round(self.mean, 4), "lowest": min(self.figures), "highest": max(self.figures)}
        return {"settings": dict(self.settings), "runs": list(self.runs), **figures}


def seed_groups(rows: Sequence[RunFigures]) -> tuple[SeedGroup, ...]:
    """From best to worst, of the runs whose figures compare; nothing unless some settings were tried with several
    seeds.
    """
    evaluated = next(iter(comparable_rows(rows)), [])
    if not any(map(is_seed, swept_fields(rows))):
        return ()
    fields = [field for field in swept_fields(rows) if not is_seed(field)]
    groups = list(_groups(evaluated, fields))
    return tuple(sorted(groups, key=lambda group: -group.mean)) if any(len(g.rows) > 1 for g in groups) else ()


def _groups(rows: Sequence[RunFigures], fields: Sequence[str]) -> Iterator[SeedGroup]:
    by_settings: dict[str, list[RunFigures]] = {}
    for row in rows:
        key = ", ".join(text_of(row.swept.get(field)) for field in fields)
        by_settings.setdefault(key, []).append(row)
    for group in by_settings.values():
        yield SeedGroup({field: group[0].swept.get(field) for field in fields}, tuple(group))


def over_seeds(groups: Sequence[SeedGroup]) -> str:
    """What the seeds say about the settings, in words."""
    best = groups[0]
    if len(groups) == 1:
        return f"over seeds: {len(best.runs)} runs that differ in their seed only: {_spread(best)}"
    second = groups[1]
    both = f"over seeds: {best.label}: {_spread(best)}; {second.label}: {_spread(second)}"
    if min(len(best.runs), len(second.runs)) < 2:
        return f"{both}; one of them has one seed only, which says nothing about chance"
    if found := seeds_difference(*([row.answers for row in group.rows] for group in groups[:2])):
        said = f"the difference is {found.text}, with the seeds and the same {found.items} items as clusters"
        return f"{both}; {said}" + ("" if found.decided else ", which may be chance: more seeds would be needed")
    why = why_unpaired(*best.rows, *second.rows)
    if min(best.figures) > max(second.figures):
        return f"{both}; every seed of the first is above every seed of the second{why}"
    return f"{both}; they overlap, so more seeds would be needed{why}"


def _spread(group: SeedGroup) -> str:
    if len(group.runs) == 1:
        return f"{group.mean:.3f} with one seed"
    lowest, highest = min(group.figures), max(group.figures)
    return f"mean {group.mean:.3f} over {len(group.runs)} seeds ({lowest:.3f} to {highest:.3f})"


def differ_in_seed_only(one: RunFigures, other: RunFigures) -> bool:
    """Whether what tells them apart is chance."""
    fields = swept_fields((one, other))
    return bool(fields) and all(map(is_seed, fields))


def conclusions(rows: Sequence[RunFigures]) -> Iterator[str]:
    """In words: the best against the second, what does not compare with it, and what remains of it over seeds."""
    ordered = ranked(rows)
    for place, verdict in enumerate(verdicts(ordered)):
        if place == 0 or verdict.kind in ("different-sets", "different-figures"):
            chance = place == 0 and differ_in_seed_only(*ordered[:2])
            yield verdict.sentence + ("; they differ in their seed only" if chance else "")
    if groups := seed_groups(ordered):
        named = {name for group in groups[:2] for name in group.runs}
        yield over_seeds(groups) + so_far(*(row for row in ordered if row.held_out and row.name in named))


def decisive(rows: Sequence[RunFigures]) -> set[str]:
    """The uids of those whose answers the conclusions rest on."""
    best = next(iter(comparable_rows(rows)), [])[:2]
    return {row.uid for row in (*best, *(row for group in seed_groups(rows)[:2] for row in group.rows))}
