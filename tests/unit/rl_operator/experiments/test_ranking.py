"""The order of an experiment's runs, and what seeds leave of it."""

import re

from tests.unit.rl_operator.experiments.rows import answering, row, swept

from rl_operator.experiments.ranking import (
    conclusions,
    decisive,
    is_seed,
    over_seeds,
    ranked,
    seed_groups,
    swept_fields,
    verdicts,
)
from rl_operator.experiments.run_figures import RunFigures

GRID = (
    swept("lr4-s0", 0.58, learning_rate=1e-4, seed=0),
    swept("lr4-s1", 0.60, learning_rate=1e-4, seed=1),
    swept("lr3-s0", 0.90, learning_rate=1e-3, seed=0),
    swept("lr3-s1", 0.94, learning_rate=1e-3, seed=1),
)


def test_by_held_out_then_by_reward_then_those_without() -> None:
    rows = [
        row("none"),
        row("paid", rollout_reward=0.2),
        row("low", 0.3, rollout_reward=0.9),
        row("more-paid", rollout_reward=0.9),
        row("high", 0.8),
        row("newer", 0.5, created="2026-01-02T00:00:00Z"),
        row("older", 0.5, created="2026-01-01T00:00:00Z"),
    ]
    assert [each.name for each in ranked(rows)] == ["high", "older", "newer", "low", "more-paid", "paid", "none"]


def test_the_best_is_compared_with_each_of_the_others() -> None:
    assert [each.runs for each in verdicts(GRID)] == [("lr3-s1", each) for each in ("lr3-s0", "lr4-s1", "lr4-s0")]
    assert verdicts([row("alone", 0.5)]) == ()


def test_only_fields_that_vary_are_swept() -> None:
    rows = [swept("a", 0.1, seed=0, lora_rank=8), swept("b", 0.2, seed=1, lora_rank=8.0)]
    assert swept_fields(rows) == ("trainer.seed",)
    assert swept_fields([*rows, row("by-hand", 0.3)]) == ("trainer.seed", "trainer.lora_rank")


def test_what_is_a_seed() -> None:
    named = ("trainer.seed", "config.item_seed", "config.seedling", "trainer.learning_rate")
    assert [is_seed(each) for each in named] == [True, True, False, False]


def test_runs_that_differ_in_seeds_only_are_one_group() -> None:
    best, other = seed_groups(GRID)
    assert (dict(best.settings), best.runs) == ({"trainer.learning_rate": 1e-3}, ("lr3-s1", "lr3-s0"))
    assert (round(best.mean, 4), min(best.figures), max(best.figures)) == (0.92, 0.90, 0.94)
    assert round(other.mean, 4) == 0.59
    assert best.to_wire()["mean"] == 0.92


def test_the_spread_over_seeds_is_told() -> None:
    assert over_seeds(seed_groups(GRID)) == (
        "over seeds: learning_rate 0.001: mean 0.920 over 2 seeds (0.900 to 0.940); "
        "learning_rate 0.0001: mean 0.590 over 2 seeds (0.580 to 0.600); "
        "every seed of the first is above every seed of the second"
    )
    mixed = (*GRID[:3], swept("lr3-s1", 0.59, learning_rate=1e-3, seed=1))
    assert over_seeds(seed_groups(mixed)).endswith("they overlap, so more seeds would be needed")
    assert "one seed only" in over_seeds(seed_groups(GRID[:3]))
    assert over_seeds(seed_groups(GRID[2:])).startswith("over seeds: 2 runs that differ in their seed only: mean 0.920")


def test_without_seeds_there_are_no_groups() -> None:
    assert seed_groups([swept("a", 0.1, lora_rank=8), swept("b", 0.2, lora_rank=16)]) == ()
    assert seed_groups([swept("a", None, seed=0), swept("b", None, seed=1)]) == ()


def test_a_difference_between_seeds_is_called_one() -> None:
    first, second = conclusions(GRID)
    assert first.startswith("not decided: held-out 0.940")
    assert first.endswith("; they differ in their seed only")
    assert second.startswith("over seeds: ")
    assert "seed only" not in next(conclusions([GRID[0], GRID[2]]))
    assert list(conclusions([GRID[0]])) == []


def test_seeds_that_still_train_are_named() -> None:
    """Their figures may be those before training."""
    open_one = GRID[3].with_changes(phase="Running", step=3, total_steps=6)
    *_, said = conclusions([*GRID[:3], open_one])
    assert said.startswith("over seeds: ")
    assert said.endswith(" (so far: lr3-s1 is Running, step 3/6)")
    new = row("lr3-s1", phase="Starting")  # of the same name, and without a figure
    *_, said = conclusions([*GRID[:3], new, open_one.with_changes(gone=True)])
    assert said.endswith(" (so far: lr3-s1 was deleted at step 3/6)")


ODD = row("odd", 0.99, held_out_set="another", swept={"trainer.learning_rate": 1.0, "trainer.seed": 0})


def test_an_odd_run_does_not_silence_the_others() -> None:
    rows = [*GRID, ODD]
    assert [each.name for each in ranked(rows)][-1] == "odd", "it leads a ranking of its own"
    found = verdicts(rows)
    assert [each.kind for each in found] == ["undecided", "better", "better", "different-sets"]
    assert found[-1].runs == ("lr3-s1", "odd")
    first, odd, seeds = conclusions(rows)
    assert (first, seeds) == tuple(conclusions(GRID))
    assert odd == found[-1].sentence


def test_runs_of_two_kinds_are_judged_within_each() -> None:
    cold = [each.with_changes(name=f"cold-{each.name}", held_out_set="cold") for each in GRID[1:3]]
    assert [each.runs for each in verdicts([*GRID[1:], *cold])] == [
        ("lr3-s1", "lr3-s0"),
        ("lr3-s1", "lr4-s1"),
        ("cold-lr3-s0", "cold-lr4-s1"),
        ("lr3-s1", "cold-lr3-s0"),
    ]


def answered(lr: float, seed: int, right: int) -> RunFigures:
    rights = [2] * right + [1] * 10 + [0] * (90 - right)
    return answering(
        f"lr{round(1e4 * lr)}-s{seed}", rights, 2, swept={"trainer.learning_rate": lr, "trainer.seed": seed}
    )


def test_settings_are_compared_over_seeds_and_items() -> None:
    rows = [*(answered(1e-3, seed, 70 + seed) for seed in range(3)), *(answered(1e-4, seed, 50) for seed in range(3))]
    assert decisive([*rows, ODD]) == {each.uid for each in rows}
    said = over_seeds(seed_groups(rows))
    assert re.search(r"the difference is 0\.210 \[0\.1\d+, 0\.[23]\d+\], with the seeds and the same 100 items", said)
    close = [*rows[:2], *(answered(1e-4, seed, 60 + 5 * seed) for seed in range(2))]
    assert over_seeds(seed_groups(close)).endswith("which may be chance: more seeds would be needed")
    without = [row.with_changes(answers={}, unpaired="it kept nothing") for row in rows]
    assert over_seeds(seed_groups(without)).endswith(
        "every seed of the first is above every seed of the second "
        "(not paired by item: lr10-s2, lr10-s1, lr10-s0, lr1-s0, lr1-s1, lr1-s2: it kept nothing)"
    )
