from itertools import pairwise

import pytest

from rl_contract.status_metrics import EvaluatedFigure, RunMetrics
from rl_contract.trainer_messages import MOST_FIGURES
from tinker_atropos.environments.items.held_out import EVAL_METRIC, MOST_SETS, Estimate, PlayedItem, evaluation_of
from tinker_atropos.environments.rollout.rollouts import Rollout
from tinker_atropos.trainer.reporting.time_left import Schedule
from tinker_atropos.trainer.reporting.trainer_status import (
    RECENT_SECONDS,
    History,
    LiveStatus,
    chosen,
    console_line,
    evaluated_figures,
)
from tinker_atropos.trainer.reporting.wait_reasons import GroupsMade
from tinker_atropos.trainer.trajectories.api_client import MetricsRecord, Peer


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
    assert [row.name for row in told.figures] == [
        "percent_correct", "pass_at_2", "greedy_percent_correct",
        "hard/percent_correct", "hard/pass_at_2", "hard/greedy_percent_correct",
    ]  # fmt: skip
    figures = {row.name: row for row in told.figures}
    assert figures["percent_correct"] == EvaluatedFigure.found(metrics)
    assert (figures["percent_correct"].value, figures["percent_correct"].samples) == (0.25, 4)
    assert figures["hard/pass_at_2"].samples == 2
    assert figures["greedy_percent_correct"].samples is None, "how many these are is not told"


def test_of_many_sets_each_has_its_first_figure() -> None:
    sets = [f"set_{number}" for number in range(MOST_SETS - 2)]
    items = [played(("main", *sets), 1.0, 0.0)]
    told = evaluated_figures(1, evaluation_of(items, float, EVAL_METRIC, samples=2).to_metrics())
    assert told is not None
    assert [row.name for row in told.figures] == [
        "percent_correct",
        "pass_at_2",
        *(f"{name}/percent_correct" for name in sets),
    ]
    assert (len(told.figures), told.more) == (MOST_FIGURES, len(sets))


def test_a_long_name_has_no_room() -> None:
    told = evaluated_figures(1, {"eval/percent_correct": 0.5, "eval/greedy": 0.5, f"eval/{'x' * 65}": 0.5})
    assert told is not None
    assert ([row.name for row in told.figures], told.more) == (["percent_correct", "greedy"], 1)


def test_a_figure_has_the_name_of_its_environment_and_its_temperature() -> None:
    status = LiveStatus(total_steps=4)
    told = {"metric": "eval/mean_reward", "temperature": 0.0}
    status.relayed(evaluation(0, 0.25).model_copy(update=told))
    assert status.baseline == EvaluatedFigure(value=0.25, step=0, metric="eval/mean_reward", temperature=0.0)
    assert status.held_out == status.baseline


def evaluation(step: int, value: float, **rest: float) -> MetricsRecord:
    return MetricsRecord(step=step, source="evaluation", metrics={"eval/percent_correct": value, **rest})


def test_history_is_bounded_and_keeps_the_whole_run() -> None:
    history = History(max_points=10)
    for step in range(1, 101):
        history.add(step, {"reward/mean": step / 100})
    steps = [point["step"] for point in history.points]
    assert 5 <= len(steps) <= 10
    assert {late - early for early, late in pairwise(steps)} == {16}
    assert steps[0] == 16
    assert steps[-1] == 96


def test_a_reader_may_choose_metrics() -> None:
    points = [{"step": 1, "loss": 0.5, "train/loss": 0.5}, {"step": 2, "train/loss": 0.4}]
    assert chosen(points, ["loss", "none"]) == [{"step": 1, "loss": 0.5}, {"step": 2}]


def test_the_first_evaluation_remains_the_baseline() -> None:
    status = LiveStatus(total_steps=40)
    interval = {"eval/percent_correct_low": 0.4, "eval/percent_correct_high": 0.6, "eval/n": 400}
    status.relayed(evaluation(0, 0.5, **interval))
    status.relayed(evaluation(40, 0.9))
    assert status.baseline == EvaluatedFigure(value=0.5, low=0.4, high=0.6, samples=400, step=0)
    assert status.held_out == EvaluatedFigure(value=0.9, step=40)


def test_an_interval_goes_with_its_evaluation() -> None:
    status = LiveStatus(total_steps=40)
    status.step_trained(20, 1.0, {})
    status.relayed(evaluation(10, 0.5, **{"eval/percent_correct_low": 0.4, "eval/percent_correct_high": 0.6}))
    status.relayed(evaluation(20, 0.9))
    assert status.run_metrics == RunMetrics(held_out=EvaluatedFigure(value=0.9, step=20))
    assert status.history.points == [{"step": 20, "heldOut": 0.9, "heldOutStep": 20}]


def test_a_resumed_attempt_has_no_baseline_of_its_own() -> None:
    status = LiveStatus(total_steps=40)
    status.relayed(evaluation(25, 0.8))
    assert status.baseline is None


def test_a_decline_is_a_warning_that_comes_and_goes() -> None:
    status = LiveStatus(total_steps=60)
    for step, value in enumerate([0.5, 0.9, 0.3, 0.3, 0.3]):
        status.relayed(evaluation(10 * step, value))
    (warning,) = [*status.message({}, None, None, silent=False).warnings]
    assert warning.startswith("held-out accuracy is far below its best: 0.3 after step 40, 0.9 after step 10;")
    status.relayed(evaluation(50, 0.85))
    assert [*status.message({}, None, None, silent=False).warnings] == []
    assert status.rewarded == {}
    status.relayed(runner_report(0, 0.9, kept=1, equal=0))
    assert status.rewarded == {"env/reward_mean": 0.9}, "files of the next step have it"
    status.step_trained(51, 1.0, {})
    status.relayed(runner_report(0, 0.1, kept=2, equal=0))
    for step in range(52, 80):
        status.step_trained(step, 1.0, {})
    (warning,) = [*status.message({}, None, None, silent=False).warnings]
    assert warning.startswith("the rollout reward of recent steps is far below its best: 0.")


def test_metrics_of_an_unmodified_environment_are_recognized_by_their_suffixes() -> None:
    status = LiveStatus(total_steps=40)
    relayed = {"gsm8k_0_train/percent_correct": 0.25, "gsm8k_0_eval/percent_correct": 0.5, "env/reward_mean": 0.3}
    status.relayed(MetricsRecord(step=3, source="environment", metrics=relayed))
    assert status.metrics == {"trainAccuracy": 0.25, "rolloutReward": 0.3}  # only the runner knows what was evaluated


def test_a_late_evaluation_is_recorded_at_its_step() -> None:
    """That of step 10 takes so long that step 30 has been evaluated when its result comes."""
    status = LiveStatus(total_steps=40)
    status.relayed(evaluation(0, 0.5))
    for step in (10, 20, 30):
        status.step_trained(step, 1.0, {})
    status.relayed(evaluation(30, 0.9))
    status.relayed(evaluation(10, 0.6))
    assert status.held_out == EvaluatedFigure(value=0.9, step=30)
    assert [(point["heldOut"], point["heldOutStep"]) for point in status.history.points] == [
        (0.6, 10), (0.6, 10), (0.9, 30),
    ]  # fmt: skip


def runner_report(environment: int | None, mean: float, kept: float, equal: float) -> MetricsRecord:
    metrics = {"env/reward_mean": mean, "env/groups_kept": kept, "env/groups_filtered_equal": equal}
    return MetricsRecord(source="runner", metrics=metrics, environment=environment)


def test_several_environments_are_added_up_and_a_replaced_one_starts_over() -> None:
    status = LiveStatus(total_steps=40)
    status.relayed(runner_report(0, 0.2, kept=4, equal=10))
    status.relayed(runner_report(1, 0.6, kept=2, equal=1))
    assert status.metrics["rolloutReward"] == pytest.approx(0.4)
    assert status.groups_made == GroupsMade(6, 11)
    status.relayed(runner_report(0, 0.3, kept=5, equal=10))
    status.relayed(runner_report(1, 0.5, kept=0, equal=3))  # another process: 2 and 1 are of the one before
    assert status.groups_made == GroupsMade(7, 14)
    status.relayed(runner_report(1, 0.5, kept=1, equal=3))
    assert status.groups_made == GroupsMade(8, 14)


def test_groups_that_are_sent_with_nothing_to_learn_count_as_equal() -> None:
    status = LiveStatus(total_steps=40)
    metrics = {"env/groups_kept": 4, "env/groups_kept_all_right": 3, "env/groups_filtered_equal": 10}
    status.relayed(MetricsRecord(source="runner", metrics=metrics))
    assert status.groups_made == GroupsMade(kept=1, equal=13)


def test_the_curve_ends_with_the_reward_of_the_status() -> None:
    """What an environment made for a step is reported after it: the two figures never part."""
    status = LiveStatus(total_steps=2)
    for step, reward in enumerate([0.25, 0.5, 0.75]):
        status.relayed(runner_report(0, reward, kept=step, equal=0))
        assert status.metrics["rolloutReward"] == reward
        assert [point["rolloutReward"] for point in status.history.points[-1:]] == [reward] * bool(step)
        status.step_trained(step + 1, 1.0, {"reward/mean": 0.1})
    assert [point["rolloutReward"] for point in status.history.points] == [0.5, 0.75, 0.75]


def test_old_reports_of_an_environment_no_longer_count() -> None:
    now = [0.0]
    status = LiveStatus(total_steps=40, clock=lambda: now[0])
    status.relayed(runner_report(0, 0.2, kept=1, equal=0))
    now[0] = RECENT_SECONDS
    status.relayed(runner_report(1, 0.6, kept=1, equal=0))
    assert status.metrics["rolloutReward"] == pytest.approx(0.4)
    now[0] += 1
    status.relayed(runner_report(1, 0.6, kept=2, equal=0))
    assert status.metrics["rolloutReward"] == 0.6


def test_the_largest_rewards_have_a_mean() -> None:
    status = LiveStatus(total_steps=40)
    for environment in range(2):
        status.relayed(runner_report(environment, 1.7e308, kept=1.7e308, equal=1.7e308))
    assert status.metrics["rolloutReward"] == 1.7e308


def test_no_environment_changes_the_trainers_own_metrics() -> None:
    status = LiveStatus(total_steps=40)
    status.step_trained(1, 2.0, {"train/loss": -0.5, "reward/mean": 0.5})
    claimed = {"train/loss": 9.0, "loss": 9.0, "reward/mean": 9.0, "staleness/mean": 9.0, "logprobs/gap": 9.0}
    status.relayed(MetricsRecord(step=1, source="environment", metrics=claimed))
    assert status.metrics == {"loss": -0.5, "batchReward": 0.5}


def test_a_single_environment_without_an_index_is_the_first() -> None:
    status = LiveStatus(total_steps=40)
    status.relayed(runner_report(None, 0.2, kept=4, equal=10))
    status.relayed(runner_report(0, 0.3, kept=5, equal=10))
    assert (status.metrics["rolloutReward"], status.groups_made) == (0.3, GroupsMade(5, 10))


def test_a_step_changes_pace_and_metrics() -> None:
    status = LiveStatus(total_steps=4, run_uid="u-1", attempt=2)
    status.step_trained(1, 9.0, {"train/loss": -0.5, "logprobs/gap": 1e-6, "staleness/mean": 0.5})
    assert status.seconds_per_step is None
    status.step_trained(2, 2.0, {"reward/mean": 0.5})
    status.step_trained(3, 4.0, {"reward/mean": 0.5})
    wire = status.message({"state": "disabled"}, "Waiting.", None, silent=False).to_wire()
    assert (wire["waiting"], wire["warnings"], wire["cost"]) == ("Waiting.", [], None)
    assert wire["wandb"] == {"state": "disabled"}
    assert (wire["runUid"], wire["attempt"]) == ("u-1", 2)
    assert wire["step"] == 3
    assert wire["totalSteps"] == 4
    assert wire["secondsPerStep"] == 2.4
    assert wire["etaSeconds"] == 3, "one step of the two that were measured"
    assert wire["metrics"] == {"batchReward": 0.5, "loss": -0.5, "logprobGap": 1e-6, "staleness": 0.5}
    assert wire["startedAt"].endswith("Z")
    assert [point["step"] for point in status.history.points] == [1, 2, 3]


def test_the_time_left_counts_the_final_evaluation() -> None:
    status = LiveStatus(total_steps=4, schedule=Schedule(4, evaluate_every=100))
    assert status.message({}, None, None, silent=False).eta_seconds is None
    status.relayed(evaluation(0, 0.5, **{"env/evaluation_seconds": 30.2}))
    status.step_trained(1, 9.0, {})
    status.step_trained(2, 2.0, {})
    assert status.message({}, None, None, silent=False).eta_seconds == 34


def test_what_a_trained_step_does_not_know_is_not_taken_from_an_earlier_one() -> None:
    status = LiveStatus(total_steps=4)
    status.step_trained(1, 1.0, {"train/loss": -0.5, "logprobs/gap": 1e-6, "staleness/mean": 0.5})
    status.step_trained(2, 1.0, {"reward/mean": 1.0})
    assert status.metrics == {"loss": -0.5, "logprobGap": 1e-6, "staleness": 0.5, "batchReward": 1.0}, (
        "nothing had an advantage"
    )
    status.step_trained(3, 1.0, {"train/loss": -0.25, "staleness/unknown": 1.0})
    assert status.metrics == {"loss": -0.25}


def test_a_line_has_what_a_step_has() -> None:
    said = console_line(3, 40, {"rolloutReward": 0.5, "time/waiting": 0.25})
    assert said.split("  ") == ["step 3/40", "rollout reward 0.500", "waited 0.25 s"]


def test_what_environments_warn_of_is_shown_after_the_trainers_own_warnings() -> None:
    status = LiveStatus(total_steps=10)
    status.warn("kl", "the sampler and the trainer disagree")
    status.heard_of(Peer(state="working", warnings=("the grader pays",), environment_state='{"level": 1}'))
    assert [*status.message({}, None, None, silent=False).warnings] == [
        "the sampler and the trainer disagree",
        "the grader pays",
    ]
    status.heard_of(Peer(state="away"))
    assert [*status.message({}, None, None, silent=False).warnings] == ["the sampler and the trainer disagree"]
    assert status.environment_state == '{"level": 1}', "the next checkpoint keeps what was known last"
