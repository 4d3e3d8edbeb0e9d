"""The runs of an experiment from best to worst, and what remains of their order over seeds. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rl_operator.api.value_text import same_value, text_of
from rl_operator.experiments.comparison import Comparison, compare_runs, so_far
from rl_operator.experiments.run_figures import RunFigures, setting_text


def ranked(rows: Sequence[RunFigures]) -> tuple[RunFigures, ...]:
    """By the held-out figure; those without one follow, by their rollout reward; of equals, the older one is first."""
    return tuple(sorted(rows, key=_place))


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
    """The best run against each of the others, in their order."""
    best, *others = ranked(rows)
    return tuple(compare_runs(best, other) for other in others)


def swept_fields(rows: Sequence[RunFigures]) -> tuple[str, ...]:
    """In which the runs' grids differ, in the order in which they were given."""
    fields = list(dict.fromkeys(field for row in rows for field in row.swept))
    return tuple(field for field in fields if not _alike([row.swept.get(field, ...) for row in rows]))


def _alike(values: Sequence[object]) -> bool:
    return all(same_value(values[0], value) for value in values)


def is_seed(field: str) -> bool:
    """`trainer.seed`, `config.item_seed`: a field that says which chance, and not what is trained."""
    last = field.rpartition(".")[2]
    return last == "seed" or last.endswith("_seed")


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """Runs that differ in their seeds only. `mean`, `lowest`, `highest`: of their held-out figures."""

    settings: Mapping[str, Any]
    runs: tuple[str, ...]
    mean: float
    lowest: float
    highest: float

    @property
    def label(self) -> str:
        """`learning_rate 0.001, loss ppo`."""
        values = ((field.rpartition(".")[2], value) for field, value in self.settings.items())
        return ", ".join(f"{name} {setting_text(value)}" for name, value in values)

    def to_wire(self) -> dict[str, Any]:
        figures = {"mean": round(self.mean, 4), "lowest": self.lowest, "highest": self.highest}
        return {"settings": dict(self.settings), "runs": list(self.runs), **figures}


def seed_groups(rows: Sequence[RunFigures]) -> tuple[SeedGroup, ...]:
    """From best to worst; nothing unless some settings were tried with several seeds, on one held-out set."""
    evaluated = [row for row in rows if row.held_out is not None]
    if len({row.held_out_set for row in evaluated}) != 1 or not any(map(is_seed, swept_fields(rows))):
        return ()
    fields = [field for field in swept_fields(rows) if not is_seed(field)]
    groups = list(_groups(evaluated, fields))
    return tuple(sorted(groups, key=lambda group: -group.mean)) if any(len(g.runs) > 1 for g in groups) else ()


def _groups(rows: Sequence[RunFigures], fields: Sequence[str]) -> Iterator[SeedGroup]:
    by_settings: dict[str, list[RunFigures]] = {}
    for row in ranked(rows):
        key = ", ".join(text_of(row.swept.get(field)) for field in fields)
        by_settings.setdefault(key, []).append(row)
    for group in by_settings.values():
        figures = [row.held_out.value for row in group if row.held_out]
        settings = {field: group[0].swept.get(field) for field in fields}
        names = tuple(row.name for row in group)
        yield SeedGroup(settings, names, fmean(figures), min(figures), max(figures))


def over_seeds(groups: Sequence[SeedGroup]) -> str:
    """What the seeds say about the settings, in words."""
    best = groups[0]
    if len(groups) == 1:
        return f"over seeds: {len(best.runs)} runs that differ in their seed only: {_spread(best)}"
    second = groups[1]
    both = f"{best.label}: {_spread(best)}; {second.label}: {_spread(second)}"
    if min(len(best.runs), len(second.runs)) < 2:
        return f"over seeds: {both}; one of them has one seed only, which says nothing about chance"
    if best.lowest > second.highest:
        return f"over seeds: {both}; every seed of the first is above every seed of the second"
    return f"over seeds: {both}; they overlap, so more seeds would be needed"


def _spread(group: SeedGroup) -> str:
    if len(group.runs) == 1:
        return f"{group.mean:.3f} with one seed"
    return f"mean {group.mean:.3f} over {len(group.runs)} seeds ({group.lowest:.3f} to {group.highest:.3f})"


def differ_in_seed_only(one: RunFigures, other: RunFigures) -> bool:
    """Whether what tells them apart is chance."""
    fields = swept_fields((one, other))
    return bool(fields) and all(map(is_seed, fields))


def conclusions(rows: Sequence[RunFigures]) -> Iterator[str]:
    """In words: the best against the second, and what remains of it over seeds."""
    ordered = ranked(rows)
    for verdict in verdicts(ordered)[:1]:
        chance = differ_in_seed_only(*ordered[:2])
        yield verdict.sentence + ("; they differ in their seed only" if chance else "")
    if groups := seed_groups(ordered):
        named = {name for group in groups[:2] for name in group.runs}
        yield over_seeds(groups) + so_far(*(row for row in ordered if row.held_out and row.name in named))
