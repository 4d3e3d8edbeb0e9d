"""A W&B summary in terms of the status; they are the same as the trainer's."""

import math

import pytest

from rl_operator.api.status_fields import RunMetrics, WandbStatus
from rl_operator.status.observed import wandb_run
from rl_operator.status.observed.wandb_run import WandbRun, at_the_end, parse_summary, read_wandb_run, wandb_status
from tinker_atropos.trainer.reporting.metric_table import METRICS, describe
from tinker_atropos.trainer.reporting.relay import curves
from tinker_atropos.trainer.reporting.trainer_status import RunStatus
from tinker_atropos.trainer.trajectories.api_client import MetricsRecord

NAMES = [
    wandb_run.STEP,
    wandb_run.SECONDS_PER_STEP,
    *wandb_run.OF_THE_TRAINER.values(),
    "env/reward_mean",
    "*train/percent_correct",
    *(f"*{end}" for end in wandb_run.OF_AN_EVALUATION.values()),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_in_the_table_of_metrics(name: str) -> None:
    assert name in {metric.name for metric in METRICS}


def test_an_environment_of_another_index_is_in_the_table_too() -> None:
    assert describe("env_3/reward_mean") is not None


def test_the_summary_agrees_with_the_trainer() -> None:
    """The same reports, once through the trainer's status and once as W&B's summary has them at the end."""
    status, summary = RunStatus(total_steps=4), dict[str, float]()
    of_step = {"train/loss": -0.25, "logprobs/gap": 2e-6, "staleness/mean": 0.5, "reward/mean": 0.1, "time/step": 2.5}
    reports = [
        ("runner", 0, {"env/reward_mean": 0.2, "env/groups_kept": 3.0, "sort_0_train/percent_correct": 0.25}),
        ("runner", 1, {"env/reward_mean": 0.6, "sort_1_train/percent_correct": 0.75}),
        ("evaluation", 0, {"eval/percent_correct": 0.5, "eval/percent_correct_low": 0.4,
                           "eval/percent_correct_high": 0.6, "eval/n": 400.0}),
    ]  # fmt: skip
    for step in (2, 3):  # the first one has no pace
        status.step_trained(step, 2.5, of_step)
    summary |= {**of_step, "train/step": 3.0}
    for source, environment, metrics in reports:
        status.relayed(MetricsRecord(step=3, metrics=metrics, source=source, environment=environment))
        summary |= curves(environment, metrics)
    found = read_wandb_run("running", summary)
    assert found.metrics == RunMetrics.model_validate(status.metrics).with_changes(eval_step=None), (
        "W&B has no step of it"
    )
    assert (found.step, found.seconds_per_step) == (status.step, status.seconds_per_step)


ODD = {"train/loss": "NaN", "logprobs/gap": math.nan, "staleness/mean": None, "train/step": 1e200, "eval/n": 1e200,
       "env/reward_mean": True, "samples": {"_type": "table-file"}, "eval/percent_correct": 0.5}  # fmt: skip


def test_values_that_are_not_finite_are_left_out() -> None:
    found = read_wandb_run("running", ODD)
    assert (found.step, found.metrics) == (None, RunMetrics(eval_accuracy=0.5))


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "3", '"x"'])
def test_an_invalid_summary_is_empty(text: str | None) -> None:
    assert parse_summary(text) == {}


@pytest.mark.parametrize(
    ("told", "own", "shown"),
    [
        (None, "running", "running"),
        ("running", "running", "running"),
        ("running", "crashed", "running; W&B says crashed"),
        ("running; W&B says crashed", "running", "running"),
        ("running; W&B says crashed", "failed", "running; W&B says failed"),
        ("offline; to send it: wandb sync /x", "crashed", "offline; to send it: wandb sync /x"),
        ("disabled", "running", "disabled"),
        ("failed", "running", "failed; W&B says running"),
    ],
)
def test_wandbs_state_is_shown_next_to_the_trainers(told: str | None, own: str, shown: str) -> None:
    before = WandbStatus(url="https://wandb.ai/me/p/runs/u-1", run_id="u-1", state=told) if told else None
    after = wandb_status(before, WandbRun(own), "u-1")
    assert (after.state, after.run_id) == (shown, "u-1")
    assert after.url == (before.url if before else None)


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        ("starting", None),
        ("running", None),
        ("running; W&B says crashed", "crashed"),
        ("finished", "finished"),
        ("failed; W&B says running", "failed; W&B says running"),
        ("offline; to send it: wandb sync /x", "offline; to send it: wandb sync /x"),
        (None, None),
    ],
)
def test_nothing_is_running_once_the_attempt_is_over(known: str | None, shown: str | None) -> None:
    assert at_the_end(WandbStatus(url="https://w/r", state=known)) == WandbStatus(url="https://w/r", state=shown)


def test_the_evaluation_with_the_shortest_name_counts_with_its_interval() -> None:
    summary = {"b_eval/percent_correct": 0.2, "b_eval/n": 8, "long_eval/percent_correct": 0.9, "long_eval/n": 9}
    metrics = read_wandb_run("running", summary).metrics
    assert (metrics.eval_accuracy, metrics.eval_accuracy_n) == (0.2, 8)
