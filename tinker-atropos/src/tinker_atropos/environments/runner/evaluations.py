"""An environment's evaluations: of which weights each is, how long it is waited for, and what it finds.

Training waits for the first and the last one, and a pause in making rollouts (`env.eval_handling`) for the others: no
longer than `eval_deadline_seconds`. After that an evaluation goes on by itself, on the weights that it began with. Its
result is reported with their step, however late it comes, unless another evaluation begins first or the run is over.

An environment's own reports (its `wandb_log`, `evaluate_log`, `save_checkpoint`) are looked through for results; one
that fails does not affect the run.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from rl_contract.scored_group import PROMPT_LOGPROB, PROMPT_MASK
from rl_contract.status_metrics import GREEDY_PREFIX
from tinker_atropos.environments.base import SampledEnvironment
from tinker_atropos.environments.items.held_out import EVAL_METRIC, Evaluation, fraction_metrics
from tinker_atropos.environments.rollout.failures import describe, environment_failed
from tinker_atropos.environments.rollout.sampled_work import SampledAnswers, sampling
from tinker_atropos.environments.rollout.working_time import WORKING_TIME
from tinker_atropos.environments.runner.reporting.heartbeat import Heartbeat
from tinker_atropos.environments.runner.reporting.shared_state import SharedState


class Reports:
    """Replaces one environment's `wandb_log`, `evaluate_log` and `save_checkpoint`, and calls the originals."""

    def __init__(self, env: Any, source: Path) -> None:
        self.source = source
        self._env = env
        self._wandb_log, self._evaluate_log, self._save_checkpoint = (
            env.wandb_log,
            env.evaluate_log,
            env.save_checkpoint,
        )
        self._evaluated: dict[str, Any] = {}
        env.wandb_log, env.evaluate_log, env.save_checkpoint = self.wandb_log, self.evaluate_log, self.save_checkpoint

    async def wandb_log(self, *args: Any, **kwargs: Any) -> None:
        """May raise: many divide by the number of rollouts since the last call, which may be 0."""
        try:
            await self._wandb_log(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- the author's code; BaseEnv would end the environment
            self._failed("wandb_log", error)

    async def evaluate_log(self, metrics: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        """Some environments report an evaluation only here."""
        self._evaluated.update(metrics)
        await self._evaluate_log(metrics, *args, **kwargs)

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        try:
            self._save_checkpoint(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- a folder that cannot be written is not a reason to end the run
            self._failed("save_checkpoint", error)

    def take_evaluation(self, returned: Any) -> dict[str, Any]:
        """Results of an evaluation that were not passed to `wandb_log`: returned, passed to `evaluate_log`, or still in
        `eval_metrics`, where most environments keep pairs of name and value for the next `wandb_log`. Removed there, so
        that they are not reported later as if from another step. Names are those that `wandb_log` would use.
        """
        waiting = getattr(self._env, "eval_metrics", None)
        pairs = [pair for pair in waiting if _is_pair(pair)] if isinstance(waiting, list) else []
        if pairs:
            self._env.eval_metrics = []
        evaluated, self._evaluated = self._evaluated, {}
        metrics = {**(returned if isinstance(returned, Mapping) else {}), **evaluated, **dict(pairs)}
        return {f"{self._env.wandb_prepend}_{name}": value for name, value in metrics.items()}

    def _failed(self, method: str, error: Exception) -> None:
        logger.warning("%s failed: %s", method, describe(error, self.source))


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str)


logger = logging.getLogger(__name__)

SNAPSHOT_SECONDS = 10.0
"""Longest wait for the trainer to answer which weights are evaluated. It has them at hand."""

ENDS = ("_low", "_high")
"""Of the metrics that are ends of an interval: the log leaves them out, as there may be many figures."""

LONGEST_METRIC = 128
"""Characters that the trajectory API takes of a name."""

SECONDS = "env/evaluation_seconds"
"""By it the trainer knows how long the final one will take."""


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """`deadline` in seconds; `metric` is the held-out figure, None: the one that the environment's class names. `seed`
    is the run's.
    """

    deadline: float = 600.0
    metric: str | None = None
    seed: int | None = None


class PolicySnapshots:
    """The trainer keeps the weights that an evaluation samples from, while training goes on."""

    def __init__(self, inference_url: str) -> None:
        self._url = inference_url

    @contextlib.asynccontextmanager
    async def pinned(self, due_step: int) -> AsyncIterator[int]:
        """Keep the weights that the evaluation due at a step is of; yields their step. Raises httpx.HTTPError."""
        transport = httpx.AsyncHTTPTransport(retries=3)
        async with httpx.AsyncClient(base_url=self._url, timeout=SNAPSHOT_SECONDS, transport=transport) as client:
            answer = await client.post("/rl/evaluation", json={"due_step": due_step})
            step = int(answer.raise_for_status().json()["step"])
            try:
                yield step
            finally:
                with contextlib.suppress(httpx.HTTPError):  # the next evaluation drops them, too
                    await client.delete(f"/rl/evaluation/{step}")


@dataclass
class Evaluations:
    """One at a time."""

    shared: SharedState
    heartbeat: Heartbeat
    reports: Reports
    snapshots: PolicySnapshots
    plan: EvaluationPlan
    running: asyncio.Task[None] | None = None
    _overdue_at: float = 0.0

    def begin(self, env: Any, due_step: int) -> None:
        """Begin the evaluation that is due at a step. One that is still running is given up."""
        if self.running is not None and not self.running.done():
            logger.warning("an evaluation is given up: the one at step %d is due", due_step)
            self.running.cancel()
        self._overdue_at = WORKING_TIME.now() + self.plan.deadline
        self.running = asyncio.create_task(self._evaluate(env, due_step), name=f"evaluation at step {due_step}")
        env.eval_runner = self.running  # BaseEnv makes fewer rollouts meanwhile, or none

    async def wait(self, env: Any) -> None:
        """Wait for the evaluation in progress, until its deadline. Raises EnvironmentLostError if it ended the code."""
        if self.running is None:
            return
        late = False
        while not late and not self.running.done():
            await asyncio.wait({self.running}, timeout=self._overdue_at - WORKING_TIME.now())
            late = WORKING_TIME.now() >= self._overdue_at  # not after a pause
        self.release(env)
        if self.running.done():
            self.running.result()

    def release(self, env: Any) -> None:
        """After its deadline, let rollouts continue beside an evaluation."""
        if env.eval_runner is not None and not env.eval_runner.done() and WORKING_TIME.now() >= self._overdue_at:
            logger.warning(
                "%s takes longer than trainer.eval_deadline_seconds (%g s): it is no longer waited for",
                env.eval_runner.get_name(), self.plan.deadline,
            )  # fmt: skip
            env.eval_runner = None

    async def _evaluate(self, env: Any, due_step: int) -> None:
        """Evaluate and report. A failed evaluation is reported and does not affect the run otherwise."""
        self.shared.phase = f"evaluating step {due_step}"
        metric = self.plan.metric or str(getattr(env, "eval_metric", EVAL_METRIC))
        begun = WORKING_TIME.now()
        try:
            async with self.snapshots.pinned(due_step) as step:
                metrics, temperature = await self._measure(env, step, metric)
        except SystemExit as error:
            raise environment_failed(f"while {self.shared.phase}", error, self.reports.source) from error
        except Exception as error:  # noqa: BLE001 -- the environment's code: see the docstring
            logger.warning("the evaluation at step %d failed: %s", due_step, describe(error, self.reports.source))
        else:
            took = {SECONDS: WORKING_TIME.now() - begun} if metrics else {}
            await self.heartbeat.tell_answers()
            self.shared.metrics.put(
                {**metrics, **took},
                step,
                "evaluation",
                metric=metric[:LONGEST_METRIC] if metrics else None,
                temperature=temperature,
            )
            await self.heartbeat.tell()
            shown = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items() if not name.endswith(ENDS))
            logger.info("evaluation at step %d: %s", step, shown or "no result")

    async def _measure(self, env: Any, step: int, metric: str) -> tuple[dict[str, float], float | None]:
        """The metrics, and the temperature that the figure of `metric` was sampled at. Our base class returns counts.
        Others pass one number to `wandb_log` the next time it is called; how many completions are behind it is counted
        as they arrive. Which of them are of one item is not known: those of one prompt count once in the interval.
        """
        queue = self.shared.metrics
        queue.latest.clear()
        keep = None if isinstance(env, SampledEnvironment) else functools.partial(self._keep, step)
        with sampling("evaluation", step, keep, self.plan.seed) as sampled, queue.judging(metric, sampled):
            outcome = await env.evaluate()
            if isinstance(outcome, Evaluation):
                if (metrics := outcome.decided_by(metric)) is not None:
                    greedy = metric.rpartition("/")[2].startswith(GREEDY_PREFIX)
                    return metrics, 0.0 if greedy else sampled.temperature
                queue.latest |= {name: outcome.to_metrics()[name] for name in (outcome.metric, *outcome.others)}
            await env.wandb_log({})  # with an argument, as BaseEnv calls it: some have no default
            untold = self.reports.take_evaluation(outcome)
            value = queue.take_latest(metric)
            if value is None:
                queue.put(untold, step, "environment")
                value = queue.take_latest(metric)
        if value is None:
            logger.warning("%s", _no_metric(metric, queue.latest))
            return {}, None
        return fraction_metrics(value, sampled.completions, effective_n=sampled.independent), sampled.temperature

    def _keep(self, step: int, answers: SampledAnswers) -> None:
        """Our base class reports its rollouts itself, with their rewards. Of others only the requests are known."""
        if answers.prompt and answers.tokens:
            self.shared.rollouts.evaluated(step, _unscored(answers))


def _unscored(answers: SampledAnswers) -> dict[str, object]:
    """The answers to one request as a group: what they earned is not known."""
    prompt = list(answers.prompt)
    before = [PROMPT_LOGPROB] * len(prompt)
    group = {
        "tokens": [[*prompt, *row] for row in answers.tokens],
        "masks": [[PROMPT_MASK] * len(prompt) + list(row) for row in answers.tokens],
        "scores": [None] * len(answers.tokens),
    }
    known = {"inference_logprobs": [[*before, *row] for row in answers.logprobs]} if answers.logprobs else {}
    return group | known


def _no_metric(metric: str, reported: Iterable[str]) -> str:
    """What to do about an evaluation that reported only other metrics."""
    others = sorted({name[name.index("eval/") :] for name in reported if "eval/" in name})
    advice = (
        f"it reports {', '.join(others)}: set the run's spec.trainer.eval_metric, or eval_metric of the environment's "
        f"class, to the one that counts"
        if others
        else "it reports none under eval/"
    )
    return f"the environment reports no {metric} ({advice})"
