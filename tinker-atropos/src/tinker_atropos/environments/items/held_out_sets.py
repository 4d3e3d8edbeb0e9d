"""Held-out sets by name: which items an evaluation samples, what was sampled of them, and the figures of each set."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from rl_contract.rollout_records import MAIN_SET
from tinker_atropos.environments.items.held_out import PREFIX, Estimate, Evaluation, pass_at, passes_reported
from tinker_atropos.environments.rollout.rollouts import Rollout
from tinker_atropos.errors import ConfigError

MOST_SETS: Final = 16
"""Besides the main one. Each has up to 20 metrics, and the trajectory API takes 1,000 from an environment at once."""

SET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
GREEDY: Final = "greedy"
"""How the metrics of greedy answers begin: `eval/greedy_percent_correct`."""

Item = TypeVar("Item")
HeldOutSets = Mapping[str, Sequence[Item]]


@dataclass(frozen=True, slots=True)
class PlayedItem(Generic[Item]):
    """An item of an evaluation: the sets it is in, its rollouts at the evaluation's temperature, and its greedy one.
    Those that failed are missing.
    """

    item: Item
    sets: tuple[str, ...]
    rollouts: Sequence[Rollout]
    greedy: Sequence[Rollout] = ()


def named_sets(main: Sequence[Item], others: HeldOutSets[Item], owner: str) -> dict[str, Sequence[Item]]:
    """All sets of an environment class `owner`, the main one first. Raises ConfigError for names that metrics cannot
    have.
    """
    if len(others) > MOST_SETS:
        raise ConfigError(
            f"{owner}.held_out_sets() has {len(others)} sets; {MOST_SETS} are allowed besides held_out_items(): "
            f"join some"
        )
    for name in others:
        if not (isinstance(name, str) and SET_NAME.fullmatch(name)) or name == MAIN_SET:
            why = "that is the set of held_out_items()" if name == MAIN_SET else f"a name matches {SET_NAME.pattern}"
            raise ConfigError(f"{owner}.held_out_sets() has a set named {name!r}: {why}; rename it")
    return {MAIN_SET: main, **others}


def items_to_play(sets: HeldOutSets[Item], most: int) -> list[tuple[Item, tuple[str, ...]]]:
    """The first `most` items of each set, and the sets of each. One object in several sets is one item, which is played
    once.
    """
    chosen = {name: list(items[:most]) for name, items in sets.items()}  # keeps them: an id may be used again
    found: dict[tuple[int, int], tuple[Item, list[str]]] = {}
    for name, items in chosen.items():
        times: Counter[int] = Counter()
        for item in items:
            found.setdefault((id(item), times[id(item)]), (item, []))[1].append(name)
            times[id(item)] += 1
    return [(item, tuple(names)) for item, names in found.values()]


def evaluation_of(
    played: Sequence[PlayedItem[Any]], worth: Callable[[float], float], metric: str, *, samples: int = 1
) -> Evaluation:
    """What rollouts are worth by `worth`, from their rewards: of the main set under `metric`, of another one under
    `eval/SET/…`. pass@k of `samples` per item, for which a worth must be right or wrong; 1: none.

    Raises ValueError if all rollouts of the main set failed.
    """
    figures: dict[str, Estimate] = {}
    for name in dict.fromkeys(name for each in played for name in each.sets):
        of_set = [each for each in played if name in each.sets]
        prefix = PREFIX if name == MAIN_SET else f"{PREFIX}/{name}"
        of_figures = _figures(of_set, worth, metric.rpartition("/")[2], samples)
        figures |= {f"{prefix}/{figure}": each for figure, each in of_figures}
    main = [[worth(each.score) for each in item.rollouts] for item in played if MAIN_SET in item.sets]
    others = {name: each for name, each in figures.items() if name != metric}
    return replace(Evaluation.of_items(main, metric), others=others)


def _figures(
    played: Sequence[PlayedItem[Any]], worth: Callable[[float], float], leaf: str, samples: int
) -> Iterator[tuple[str, Estimate]]:
    """Of one set, by name; what nothing is known about is left out."""
    verdicts = [[worth(each.score) for each in item.rollouts] for item in played if item.rollouts]
    if verdicts:
        yield leaf, Estimate.of_samples(verdicts)
    for k in passes_reported(samples):
        known = [each for each in verdicts if len(each) >= k]
        if known:
            passed = [pass_at(k, len(each), int(sum(each))) for each in known]
            yield f"pass_at_{k}", Estimate.of_items(passed, sum(map(len, known)))
    if greedy := [[worth(each.score) for each in item.greedy] for item in played if item.greedy]:
        yield f"{GREEDY}_{leaf}", Estimate.of_samples(greedy)
