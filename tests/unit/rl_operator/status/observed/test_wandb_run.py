"""A W&B summary in terms of the status; they are the same as the trainer's."""

import math

import pytest

from rl_contract.status_metrics import EvaluatedFigure, RunMetrics
from rl_contract.trainer_messages import WandbStatus
from rl_operator.status.observed.wandb_run import WandbRun, at_the_end, parse_summary, read_wandb_run, wandb_status


def test_the_summary_becomes_the_figures_of_a_status() -> None:
    of_step = {"train/step": 3.0, "train/loss": -0.25, "logprobs/gap": 2e-6, "staleness/mean": 0.5, "time/step": 2.5}
    of_environments = {
        "env/reward_mean": 0.2,
        "env_1/reward_mean": 0.6,
        "reward/mean": 0.1,
        "sort_0_train/percent_correct": 0.25,
        "sort_1_train/percent_correct": 0.75,
    }
    evaluation = {"eval/percent_correct": 0.5, "eval/percent_correct_low": 0.4, "eval/percent_correct_high": 0.6,
                  "eval/n": 400.0}  # fmt: skip
    found = read_wandb_run("running", of_step | of_environments | evaluation)
    assert (found.step, found.seconds_per_step) == (3, 2.5)
    assert found.metrics == RunMetrics(
        loss=-0.25, logprob_gap=2e-6, staleness=0.5, rollout_reward=0.4, batch_reward=0.1, train_accuracy=0.5,
        held_out=EvaluatedFigure(value=0.5, low=0.4, high=0.6, samples=400),
    )  # fmt: skip


ODD = {"train/loss": "NaN", "logprobs/gap": math.nan, "staleness/mean": None, "train/step": 1e200, "eval/n": 1e200,
       "env/reward_mean": True, "samples": {"_type": "table-file"}, "eval/percent_correct": 0.5}  # fmt: skip


def test_values_that_are_not_finite_are_left_out() -> None:
    found = read_wandb_run("running", ODD)
    assert (found.step, found.metrics) == (None, RunMetrics(held_out=EvaluatedFigure(value=0.5)))


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
    assert (metrics.held_out.value, metrics.held_out.samples) == (0.2, 8)
