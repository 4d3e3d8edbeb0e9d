"""What an environment reports besides its groups, and what a failing report costs."""

import logging
from pathlib import Path
from typing import Any

import pytest

from tinker_atropos.environments.runner.reporting.reports import Reports


class Author:
    """An environment's reporting side, as authors write it."""

    wandb_prepend = "mine_0"

    def __init__(self) -> None:
        self.eval_metrics: list[Any] = []
        self.saved: list[int] = []
        self.told: list[Any] = []

    async def wandb_log(self, wandb_metrics: dict[str, Any]) -> None:
        wandb_metrics["train/percent_correct"] = 1 / len(wandb_metrics)
        self.told.append(wandb_metrics)

    async def evaluate_log(self, metrics: dict[str, Any], task_name: str | None = None) -> None:
        self.told.append((metrics, task_name))

    def save_checkpoint(self, step: int) -> None:
        if step > 5:
            raise PermissionError(13, "read-only")
        self.saved.append(step)


@pytest.fixture
def env() -> Any:
    return Author()


@pytest.fixture
def reports(env: Any) -> Reports:
    return Reports(env, Path(__file__))


async def test_a_failing_report_is_logged_with_its_line_and_nothing_else(env, reports, caplog) -> None:
    await env.wandb_log({})
    env.save_checkpoint(6)
    env.save_checkpoint(5)
    await env.wandb_log({"a": 1.0})
    assert env.told == [{"a": 1.0, "train/percent_correct": 1.0}]
    assert env.saved == [5]
    first, second = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert first.startswith("wandb_log failed: ZeroDivisionError: division by zero (test_reports.py, line ")
    assert second.startswith("save_checkpoint failed: PermissionError: [Errno 13] read-only (test_reports.py, line ")


async def test_an_evaluation_is_found_wherever_it_was_logged(env, reports) -> None:
    assert reports.take_evaluation(None) == {}
    assert reports.take_evaluation({"eval/a": 0.5}) == {"mine_0_eval/a": 0.5}
    await env.evaluate_log(metrics={"eval/a": 0.25}, task_name="t")
    assert env.told == [({"eval/a": 0.25}, "t")]
    assert reports.take_evaluation(None) == {"mine_0_eval/a": 0.25}
    env.eval_metrics = [("eval/a", 0.75), "not a pair"]
    assert reports.take_evaluation(None) == {"mine_0_eval/a": 0.75}


async def test_an_evaluation_is_taken_once(env, reports) -> None:
    """Repeated with the next wandb_log, it would pass for one of a later step."""
    await env.evaluate_log({"eval/a": 0.25})
    env.eval_metrics = [("eval/b", 0.75)]
    assert reports.take_evaluation(None) == {"mine_0_eval/a": 0.25, "mine_0_eval/b": 0.75}
    assert env.eval_metrics == []
    assert reports.take_evaluation(None) == {}
