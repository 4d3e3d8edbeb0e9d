"""Which figures of an evaluation a status shows beside the one that decides."""

from rl_contract.trainer_messages import MOST_FIGURES
from tinker_atropos.environments.items.held_out import EVAL_METRIC, MOST_SETS, Estimate, PlayedItem, evaluation_of
from tinker_atropos.environments.rollout.rollouts import Rollout
from tinker_atropos.trainer.reporting.evaluated_figures import evaluated_figures


def played(sets: tuple[str, ...], *rewards: float, greedy: float | None = None) -> PlayedItem[str]:
    at_zero = () if greedy is None else (rollout(greedy),)
    return PlayedItem("item", sets, [rollout(reward) for reward in rewards], at_zero)


def rollout(reward: float) -> Rollout:
    return Rollout([], reward)


def test_one_figure_is_told_by_the_metrics() -> None:
    assert evaluated_figures(3, Estimate(0.5, 8, 0.2, 0.8).to_metrics(EVAL_METRIC) | {"eval/n": 8.0}) is None
    assert evaluated_figures(3, {"env/evaluation_seconds": 3.0}) is None


def test_figures_of_a_real_evaluation() -> None:
    items = [played(("main",), 1.0, 0.0, greedy=1.0), played(("main", "hard"), 0.0, 0.0, greedy=0.0)]
    metrics = evaluation_of(items, float, EVAL_METRIC, samples=2).to_metrics()
    told = evaluated_figures(40, {**metrics, "env/evaluation_seconds": 3.0})
    assert told is not None
    assert (told.step, told.more) == (40, 0)
    assert [row[0] for row in told.figures] == [
        "percent_correct", "pass_at_2", "greedy_percent_correct",
        "hard/percent_correct", "hard/pass_at_2", "hard/greedy_percent_correct",
    ]  # fmt: skip
    figures = {row[0]: row for row in told.figures}
    assert figures["percent_correct"] == (
        "percent_correct", 0.25, metrics["eval/percent_correct_low"], metrics["eval/percent_correct_high"], 4,
    )  # fmt: skip
    assert figures["hard/pass_at_2"][4] == 2
    assert figures["greedy_percent_correct"][4] is None, "how many these are is not told"


def test_of_many_sets_each_has_its_first_figure() -> None:
    sets = [f"set_{number}" for number in range(MOST_SETS - 2)]
    items = [played(("main", *sets), 1.0, 0.0)]
    told = evaluated_figures(1, evaluation_of(items, float, EVAL_METRIC, samples=2).to_metrics())
    assert told is not None
    assert [row[0] for row in told.figures] == [
        "percent_correct",
        "pass_at_2",
        *(f"{name}/percent_correct" for name in sets),
    ]
    assert (len(told.figures), told.more) == (MOST_FIGURES, len(sets))


def test_a_long_name_has_no_room() -> None:
    told = evaluated_figures(1, {"eval/percent_correct": 0.5, "eval/greedy": 0.5, f"eval/{'x' * 65}": 0.5})
    assert told is not None
    assert ([row[0] for row in told.figures], told.more) == (["percent_correct", "greedy"], 1)
