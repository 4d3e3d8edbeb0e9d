"""Evaluations of an environment that takes its time; the trainer's side is scripted."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tinker_atropos.environments.base import SampledEnvironment
from tinker_atropos.environments.items.held_out import Estimate, Evaluation
from tinker_atropos.environments.rollout.sampled_work import SampledAnswers, _current
from tinker_atropos.environments.runner.evaluations import EvaluationPlan, Evaluations, Reports
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport


class Slow:
    """An environment whose evaluation ends when `finish` is set, and a trainer that keeps what `kept` lists."""

    def __init__(self, plan: EvaluationPlan, outcome: Any = None) -> None:
        self.finish, self.outcome = asyncio.Event(), outcome
        self.kept: list[int] = []
        self.answers_told = 0
        self.sampled_steps: list[int | None] = []
        self.eval_runner: asyncio.Task[None] | None = None
        self.shared = SharedState(total_steps=100)
        itself: Any = self
        self.evaluations = Evaluations(self.shared, itself, itself, itself, plan)

    source = Path("mine.py")

    @contextlib.asynccontextmanager
    async def pinned(self, due_step: int) -> AsyncIterator[int]:
        self.kept.append(due_step)
        try:
            yield due_step
        finally:
            self.kept.remove(due_step)

    async def evaluate(self) -> Any:
        await self.finish.wait()
        sampled = _current.get()
        self.sampled_steps.append(sampled.step if sampled else None)
        if sampled:
            sampled.add("prompt", 1, 5, 0.7)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def wandb_log(self, _metrics: dict[str, Any]) -> None:
        pass

    def take_evaluation(self, returned: Any) -> dict[str, Any]:
        return {f"mine_0_{name}": value for name, value in (returned if isinstance(returned, dict) else {}).items()}

    async def tell_answers(self) -> None:
        told = [each.source for each in self.shared.metrics.records]
        assert "evaluation" not in told, "with the result of the last evaluation, the trainer ends"
        self.answers_told += 1

    async def tell(self) -> None:
        assert self.answers_told

    @property
    def figure(self) -> tuple[str | None, float | None]:
        """What the last report says of the held-out figure: its name in the environment, and its temperature."""
        told = self.shared.metrics.records[-1]
        return told.metric, told.temperature

    @property
    def reported(self) -> list[tuple[int | None, float]]:
        return [
            (record.step, record.metrics["eval/percent_correct"])
            for record in self.shared.metrics.records
            if record.source == "evaluation" and record.metrics
        ]


async def ended(slow: Slow) -> None:
    assert slow.evaluations.running is not None
    await asyncio.wait({slow.evaluations.running}, timeout=60)


async def test_a_result_after_the_deadline_is_reported_with_its_step() -> None:
    slow = Slow(EvaluationPlan(deadline=0), Evaluation(correct=3, n=4))
    slow.evaluations.begin(slow, 20)
    await slow.evaluations.wait(slow)  # not for longer than the deadline
    assert slow.reported == []
    assert slow.eval_runner is None  # BaseEnv makes rollouts again
    assert slow.kept == [20]  # the weights are still needed
    slow.finish.set()
    await ended(slow)
    assert slow.reported == [(20, 0.75)]
    assert slow.shared.metrics.records[-1].metrics["env/evaluation_seconds"] > 0
    assert slow.sampled_steps == [20]
    assert slow.kept == []


async def test_an_evaluation_that_never_ends_makes_room_for_the_next() -> None:
    slow = Slow(EvaluationPlan(deadline=0), Evaluation(correct=3, n=4))
    slow.evaluations.begin(slow, 20)
    await slow.evaluations.wait(slow)
    slow.evaluations.begin(slow, 40)
    slow.finish.set()
    await ended(slow)
    assert slow.reported == [(40, 0.75)]
    assert slow.kept == []


async def evaluated(plan, outcome):
    """An evaluation of step 20 that has this outcome, and has ended."""
    slow = Slow(plan, outcome)
    slow.finish.set()
    slow.evaluations.begin(slow, 20)
    await slow.evaluations.wait(slow)
    return slow


@pytest.mark.parametrize("outcome", [RuntimeError("no data"), {"eval/other": 0.5}, None])
async def test_an_evaluation_without_a_result_lets_go_of_the_weights(outcome):
    slow = await evaluated(EvaluationPlan(), outcome)
    assert (slow.reported, slow.kept) == ([], [])


FIGURES = {
    "its mean reward": (
        ("eval/mean_reward", 0.7),
        Evaluation(correct=1.5, n=2, metric="eval/mean_reward"),
        0.75,
    ),
    "another one of the same evaluation": (
        ("eval/hard/percent_correct", 0.7),
        Evaluation(3, 4, others={"eval/hard/percent_correct": Estimate(0.25, 8, 0.1, 0.5)}),
        0.25,
    ),
    "that of greedy answers": (
        ("eval/greedy_percent_correct", 0.0),
        Evaluation(3, 4, others={"eval/greedy_percent_correct": Estimate(0.5, 4, 0.1, 0.9)}),
        0.5,
    ),
    "one of an environment's own": (
        ("eval/overall_percent_correct", 0.7),
        {"eval/overall_percent_correct": 0.25},
        0.25,
    ),
}


@pytest.mark.parametrize(("figure", "outcome", "value"), FIGURES.values(), ids=FIGURES)
async def test_the_figure_that_counts_is_reported_by_the_name_that_status_knows(figure, outcome, value):
    slow = await evaluated(EvaluationPlan(metric=figure[0]), outcome)
    assert (slow.reported, slow.figure) == ([(20, value)], figure)


@pytest.mark.parametrize("outcome", [{"eval/aime24": 0.5, "eval/overall": 0.25}, Evaluation(correct=3, n=4)])
async def test_a_missing_metric_is_named_with_those_that_were_seen(outcome, caplog):
    await evaluated(EvaluationPlan(metric="eval/math"), outcome)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    seen = "eval/aime24, eval/overall" if isinstance(outcome, dict) else "eval/percent_correct"
    assert warning.startswith(f"the environment reports no eval/math (it reports {seen}")
    assert "spec.trainer.eval_metric" in warning


class Asking(Slow):
    """Somebody else's: it samples, and nobody knows what an answer earns."""

    async def evaluate(self) -> Any:
        sampled = _current.get()
        if sampled.keep is not None:
            sampled.keep(SampledAnswers([1, 2], [[3], [4, 5]], [[-0.5], [-0.1, -0.2]]))
            sampled.keep(SampledAnswers([1], [[3]], None))
        return Evaluation(1, 2)


async def test_the_answers_of_somebody_elses_environment_are_reported_without_rewards() -> None:
    asking = Asking(EvaluationPlan())
    asking.evaluations.begin(asking, 40)
    await ended(asking)
    (first, second), _ = asking.shared.rollouts.take()
    report = RolloutReport.model_validate_json(orjson.dumps({"groups": [first, second]}))
    assert [(each.fate, each.step, each.group.scores) for each in report.groups] == [
        ("evaluated", 40, [None, None]),
        ("evaluated", 40, [None]),
    ]
    assert report.groups[0].group.tokens == [[1, 2, 3], [1, 2, 4, 5]]
    assert report.groups[0].group.masks == [[-100, -100, 3], [-100, -100, 4, 5]]
    assert report.groups[0].group.inference_logprobs == [[1.0, 1.0, -0.5], [1.0, 1.0, -0.1, -0.2]]
    assert report.groups[1].group.inference_logprobs is None


async def test_our_base_class_reports_its_answers_itself() -> None:
    class Ours(Asking):
        """What it is asked for here, the base class has, too."""

    SampledEnvironment.register(Ours)
    asking = Ours(EvaluationPlan())
    asking.evaluations.begin(asking, 40)
    await ended(asking)
    assert asking.shared.rollouts.take() == ([], [])


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
    assert first.startswith("wandb_log failed: ZeroDivisionError: division by zero (test_evaluations.py, line ")
    assert second.startswith(
        "save_checkpoint failed: PermissionError: [Errno 13] read-only (test_evaluations.py, line "
    )


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
