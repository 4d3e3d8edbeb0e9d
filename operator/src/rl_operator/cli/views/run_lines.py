"""What is printed of a run: lines while it is followed, its curve, and what a user wants to know at its end.

What others wrote into it is cleaned. The curve of a run that is over comes from its stored history if there is one,
else from the samples in its status.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rl_operator.api.names import BUDGET_REACHED
from rl_operator.api.status_fields import SUSPENDED_PHASES
from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.printing import CURVE_WIDTH, age, columns, fitted, one_line, program, sparkline, visible
from rl_operator.status.text.figure_text import money_spent
from rl_operator.targets.runs.run_lookup import kept_rewards
from rl_operator.targets.runs.run_text import best_sentence, held_out_rows, notable_best, time_left, weight_commands
from rl_operator.targets.target import Target

HELD_OUT_COLUMNS = ("FIGURE", "VALUE", "95 % INTERVAL", "N")


@dataclass
class Curve:
    """The rollout reward at each step that was seen: the status alone keeps only ten samples."""

    points: dict[int, float] = field(default_factory=dict)

    def add(self, run: TrainingRun) -> None:
        status = run.status
        for sample in status.history:
            self.points.setdefault(sample.step, sample.rollout_reward)
        if status.progress and status.metrics and status.metrics.rollout_reward is not None:
            self.points[status.progress.step] = status.metrics.rollout_reward

    def line(self, width: int = CURVE_WIDTH) -> str:
        return sparkline([self.points[step] for step in sorted(self.points)], width)


def plain_line(run: TrainingRun) -> str:
    """What happens, and how long it still takes."""
    return "   ".join(filter(None, (news(run), time_left(run))))


def news(run: TrainingRun) -> str:
    """One line that changes whenever something worth reading changes: that time passes is not."""
    status = run.status
    if status.phase != "Running" or status.progress is None:
        return f"{status.phase or 'Pending':<9} {one_line(status.message or '')}".rstrip()
    parts = [f"{'Running':<9} step {status.progress.step}/{status.progress.total_steps}"]
    if status.metrics:
        parts += map(" ".join, status.metrics.texts("line").values())
    return "   ".join(parts)


def held_out_table(run: TrainingRun) -> Iterator[str]:
    """If the newest evaluation has more than the one figure."""
    if told := run.status.evaluation:
        more = (
            f"; {program()} rollouts {run.metadata.name} --step {told.step} has {told.more} more" if told.more else ""
        )
        yield f"  evaluated after step {told.step}{more}"
        yield from (f"    {line}" for line in columns(HELD_OUT_COLUMNS, held_out_rows(told)).splitlines())


def summary(run: TrainingRun, target: Target) -> str:
    """What was trained, before and after, where the weights are, and what to do next."""
    lines = _success(run, target) if run.status.phase == "Succeeded" else _no_success(run, target)
    return fitted(map(visible, ["", *lines]))


def _success(run: TrainingRun, target: Target) -> Iterator[str]:
    status, name = run.status, run.metadata.name
    steps = status.progress.step if status.progress else 0
    took = age(status.start_time, status.completion_time)
    yield f"{name}: trained {run.spec.environment} for {steps} steps in {took} ({target.label}, {run.spec.runtime})"
    if (metrics := status.metrics) and metrics.held_out is not None:
        before = metrics.baseline.text if metrics.baseline else "-"
        after = f" over {metrics.held_out.samples} samples" if metrics.held_out.samples else ""
        yield f"  held-out        before {before}   after {metrics.held_out.text}   (95 % intervals{after})"
    yield from held_out_table(run)
    yield from reward_line(run, target)
    yield from _cost(run)
    if status.weights:
        yield f"  weights         {status.weights.sampler_path}   (to sample from)"
        yield f"                  {status.weights.state_path}   (to train on from)"
    yield from best_line(run)
    yield from _curves(run)
    yield "Next:"
    commands = {
        f"{program()} results {name}{target.flags}": "these metrics and paths again; -o json for programs",
        f"{program()} rollouts {name}{target.flags}": "what was paid, and what became of every token",
        **weight_commands(run, program(), target.flags),
        f"{program()} logs {name} -c environment{target.flags}": "what the environment said",
        f"{program()} environments{target.flags}": "what else can be trained",
    }
    width = max(map(len, commands))
    yield from (f"  {command:<{width}}   {purpose}" for command, purpose in commands.items())


def _no_success(run: TrainingRun, target: Target) -> Iterator[str]:
    status, name = run.status, run.metadata.name
    yield f"{name}: {status.phase}: {one_line(status.message or '')} ({target.label})"
    for refusal in status.refusals:
        yield f"  {refusal.code}: {one_line(refusal.sentence)}"
    yield from held_out_table(run)
    if status.checkpoint:
        yield f"  checkpoint  step {status.checkpoint.step}   {status.checkpoint.state_path}"
    yield from reward_line(run, target)
    yield from _cost(run)
    yield from best_line(run)
    yield from _curves(run)
    if status.phase in SUSPENDED_PHASES:
        suspended = status.condition("Suspended")
        raised = " --budget AMOUNT" if suspended and suspended.reason == BUDGET_REACHED else ""
        yield f"Next: {program()} resume {name}{raised}{target.flags}"
    if status.failure and status.pod_name:
        container = status.failure.container or "trainer"
        yield f"Next: {program()} logs {name} -c {container} --tail 50{target.flags}"


def _cost(run: TrainingRun) -> Iterator[str]:
    if cost := run.status.cost:
        yield f"  cost            {money_spent(cost.amount, cost.currency, cost.budget)}"


def _curves(run: TrainingRun) -> Iterator[str]:
    """The W&B URL, or why there is none; offline, the command that uploads the run."""
    wandb = run.status.wandb
    if wandb and wandb.url:
        yield f"  W&B             {wandb.url}"
    if wandb and wandb.state and wandb.state.startswith(("offline", "failed")):
        yield f"  W&B             {wandb.state}"


def best_line(run: TrainingRun) -> Iterator[str]:
    """Where the best weights are, unless the last ones are as good; and whether that matters."""
    best = notable_best(run)
    if best is None:
        return
    figure = f"held-out {best.held_out.text}"
    yield f"  best            step {best.step}: {figure}   (sample and export take these with --best)"
    if worse := best_sentence(run):
        yield f"                  {worse}"


def reward_line(run: TrainingRun, target: Target) -> Iterator[str]:
    """The first rollout reward, the curve and the last one, which is the status'; no line if none is known."""
    rewards = kept_rewards(run, target) or [sample.rollout_reward for sample in run.status.history]
    shown = run.status.metrics.rollout_reward if run.status.metrics else None
    if rewards and shown is not None and shown != rewards[-1]:  # the curve of a run that runs is of some steps only
        rewards = [*rewards, shown]
    if rewards:
        yield f"  rollout reward  {rewards[0]:.3f} {sparkline(rewards)} {rewards[-1]:.3f}"
