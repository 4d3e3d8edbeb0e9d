"""Whose metrics a status shows: the trainer's while they arrive, then W&B's, at the end the result's."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import (
    NOW,
    RUNNING,
    TRAINING,
    ended_pod,
    make_pod,
    make_view,
    ready,
    result,
    running,
    status_of,
    terminated,
)

from rl_contract.status_metrics import EvaluatedFigure, RunMetrics
from rl_contract.trainer_messages import EvaluatedFigures, ItemAccount, RunCost, TrainerResult
from rl_operator.api.status_fields import Progress, RunStatus
from rl_operator.status.attempt.view import View
from rl_operator.status.derived_status import started, worth_writing
from rl_operator.status.observed.observation import ObservedTrainer
from rl_operator.status.observed.wandb_run import WandbRun
from rl_operator.status.observed_progress import continued

TRAINER = ObservedTrainer.model_validate(
    {"phase": "training", "step": 12, "totalSteps": 40, "secondsPerStep": 0.5,
     "metrics": {"rolloutReward": 0.71234, "loss": -0.1}, "wandb": {"state": "running", "url": "https://w/e/p/runs/u-1"}}
)  # fmt: skip
WANDB = WandbRun("running", step=20, seconds_per_step=0.4, metrics=RunMetrics(rollout_reward=0.8))
WORKING = make_view(RUNNING, pod=TRAINING, trainer=TRAINER)


def after(view: View, **changes: Any) -> View:
    """The next reconcile, a minute after this status was written."""
    run = view.run.with_changes(status=status_of(view))
    return replace(view, run=run, now=view.now + timedelta(seconds=60), **changes)


def metrics(view: View) -> RunMetrics:
    found = status_of(view).metrics
    assert found is not None
    return found


def test_the_trainers_metrics_win_while_they_arrive() -> None:
    found = metrics(replace(WORKING, wandb=WANDB))
    assert (found.source, found.rollout_reward, found.loss) == ("trainer", 0.7123, -0.1)


def test_a_run_that_ended_early_is_complete_at_its_last_step() -> None:
    """While it ends, and after: nothing is left, whatever its pace was."""
    ending = TRAINER.with_changes(step=15, stopped_early="good enough", eta_seconds=7)
    shown = status_of(after(WORKING, trainer=ending)).progress
    assert (shown.step, shown.total_steps, shown.stopped_early, shown.eta_seconds) == (15, 40, "good enough", 7)
    told = result(stepsTrained=15, stoppedEarly="good enough")
    over = status_of(after(WORKING, pod=make_pod(ready(), terminated(0, told), terminated(0), phase="Succeeded")))
    assert (over.phase, over.progress.step, over.progress.eta_seconds) == ("Succeeded", 15, 0)
    assert over.progress.stopped_early == "good enough"
    assert over.message == "Stopped early at step 15: good enough. The weights are saved."
    assert [attempt.reason for attempt in over.attempts] == ["Succeeded"]


def test_wandbs_metrics_are_used_while_the_trainer_is_unreachable() -> None:
    unheard = after(WORKING, trainer=None, unreachable=True, wandb=WANDB)
    found, progress = metrics(unheard), status_of(unheard).progress
    assert (found.source, found.rollout_reward, found.loss) == ("wandb", 0.8, -0.1)
    assert found.observed_at == "2026-05-01T12:01:00Z"
    assert (progress.step, progress.total_steps, progress.eta_seconds) == (20, 40, 8)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        pytest.param(None, 14, id="a trainer that estimates nothing: the steps at their pace"),
        pytest.param(30, 30, id="its own estimate"),
        pytest.param(0, 0, id="over"),
    ],
)
def test_the_time_left_is_the_trainers(told: int | None, shown: int) -> None:
    progress = status_of(replace(WORKING, trainer=TRAINER.with_changes(eta_seconds=told))).progress
    assert (progress.step, progress.eta_seconds) == (12, shown)


def test_the_time_left_of_an_earlier_step_is_not_shown() -> None:
    behind = after(WORKING, trainer=TRAINER.with_changes(step=10, eta_seconds=300))
    progress = status_of(behind).progress
    assert (progress.step, progress.eta_seconds) == (12, 14)


def test_an_unreachable_trainer_has_the_steps_the_run_asks_for() -> None:
    pod = TRAINING
    spec = {"config": {"total_steps": 80}}
    progress = status_of(make_view(RUNNING, pod=pod, spec=spec, unreachable=True, wandb=WANDB)).progress
    assert (progress.step, progress.total_steps, progress.percent) == (20, 80, 25)
    unknown = status_of(make_view(RUNNING, pod=pod, unreachable=True, wandb=WANDB))
    assert (unknown.progress, unknown.history) == (None, ())
    assert unknown.metrics is not None


LOST = WandbRun("running", step=50, metrics=RunMetrics(rollout_reward=0.8, held_out=EvaluatedFigure(value=0.9)))
SECOND = {
    **RUNNING,
    "attempt": 2,
    "progress": {"step": 40, "fromStep": 40, "totalSteps": 150, "percent": 26},
}


@pytest.mark.parametrize(
    ("trainer", "changes", "phase"),
    [(running(), {"unheard": True}, "Starting"), (ready(), {"unreachable": True}, "Running")],
    ids=["it starts", "it trains"],
)
def test_a_later_attempt_has_no_figures_of_wandb(trainer: Any, changes: dict[str, bool], phase: str) -> None:
    """They may be those of the attempt that was lost: both have one run there."""
    second = SECOND | {"phase": phase}
    status = status_of(make_view(second, pod=make_pod(ready(), trainer, ready()), wandb=LOST, **changes))
    assert (status.phase, status.metrics) == (phase, None)
    assert status.progress.step == 40
    assert status.wandb.state == "running"
    assert "50" not in (status.message or "")
    assert "come from W&B" not in (status.message or "")


def test_wandb_has_no_figures_for_an_attempt_that_starts() -> None:
    starting = {**RUNNING, "phase": "Starting"}
    view = make_view(starting, pod=make_pod(ready(), running(), ready()), unreachable=True, wandb=WANDB)
    assert (status_of(view).phase, status_of(view).metrics) == ("Starting", None)


def test_a_step_that_the_trainer_reports_later_wins_over_wandbs() -> None:
    told = after(after(WORKING, trainer=None, unreachable=True, wandb=WANDB), trainer=TRAINER, unreachable=False)
    status = status_of(told)
    assert (status.progress.step, status.progress.percent) == (12, 30)
    assert (status.metrics.source, status.metrics.rollout_reward) == ("trainer", 0.7123)


def test_a_step_that_the_result_reports_wins_over_wandbs() -> None:
    unheard = after(WORKING, trainer=None, unreachable=True, wandb=WANDB)
    stopped = result(outcome="stopped", stepsTrained=15, samplerPath=None)
    over = make_pod(ready(), terminated(0, stopped), terminated(0), phase="Succeeded")
    status = status_of(after(unheard, pod=over, unreachable=False, wandb=None))
    assert (status.progress.step, status.metrics.source, status.metrics.rollout_reward) == (15, "result", 0.91)


@pytest.mark.parametrize("outcome", ["failed", "running"])
def test_the_last_checkpoint_of_a_trainer_that_failed_is_not_where_it_was(outcome: str) -> None:
    """Its result has the step of that checkpoint, and figures of the end."""
    unheard = after(WORKING, trainer=None, unreachable=True, wandb=WANDB)
    failed = result(outcome=outcome, stepsTrained=10, samplerPath=None, metrics={"rolloutReward": 0.21})
    over = ended_pod(terminated(1, failed))
    status = status_of(after(unheard, pod=over, unreachable=False, wandb=None))
    assert (status.progress.step, status.attempts[0].steps) == (WANDB.step, WANDB.step)
    assert (status.metrics.source, status.metrics.rollout_reward) == ("wandb", 0.8)


def test_an_attempt_that_ends_before_its_training_is_open_has_the_step_it_began_with() -> None:
    """What is left of the first attempt's metrics still names W&B."""
    failed = result(outcome="failed", attempt=2, stepsTrained=0, statePath=None, samplerPath=None, metrics={})
    over = ended_pod(terminated(4, failed))
    begun = SECOND | {"metrics": {"baseline": {"value": 0.1}, "source": "wandb"}}
    status = status_of(make_view(begun, pod=over))
    assert (status.progress.step, status.progress.from_step) == (40, 40)


def test_metrics_ahead_of_wandb_are_kept() -> None:
    behind = after(WORKING, trainer=None, unreachable=True, wandb=replace(WANDB, step=3))
    assert (metrics(behind).source, metrics(behind).rollout_reward) == ("trainer", 0.7123)


def test_a_short_silence_changes_nothing() -> None:
    silent = after(WORKING, trainer=None, wandb=WANDB)
    assert status_of(silent) == silent.run.status


def test_the_results_metrics_win_at_the_end() -> None:
    unheard = after(WORKING, trainer=None, unreachable=True, wandb=WANDB)
    over = make_pod(ready(), terminated(0, result()), terminated(0), phase="Succeeded")
    found = metrics(after(unheard, pod=over, unreachable=False, wandb=None))
    assert (found.source, found.rollout_reward) == ("result", 0.91)


def test_the_result_of_a_killed_trainer_is_older_than_its_metrics() -> None:
    killed = result(outcome="running", stepsTrained=10, metrics={"rolloutReward": 0.5}, samplerPath=None)
    over = ended_pod(terminated(137, killed), terminated(1))
    status = status_of(after(WORKING, trainer=None, pod=over))
    assert (status.metrics.source, status.metrics.rollout_reward) == ("trainer", 0.7123)
    assert status.checkpoint.step == 10


def test_wandbs_state_is_shown_but_never_trusted() -> None:
    crashed = after(WORKING, wandb=WandbRun("crashed"))
    status = status_of(crashed)
    assert (status.phase, status.wandb and status.wandb.state) == ("Running", "running; W&B says crashed")
    assert not worth_writing(crashed.run.status, status, NOW + timedelta(seconds=5), 60.0)


def test_answers_about_a_finished_attempt_change_nothing() -> None:
    """Its end is written, and the poller still has the trainer's last answer."""
    over = after(WORKING, pod=ended_pod(terminated(4)))
    ended = after(over, trainer=TRAINER.model_copy(update={"step": 13}), wandb=WANDB)
    assert ended.run.status.attempts[-1].attempt == 1
    for status in (ended.run.status, status_of(ended)):
        assert (status.wandb.state, status.wandb.url) == (None, "https://w/e/p/runs/u-1")
        assert status.progress.step == 12


@pytest.mark.parametrize(("wandb", "source"), [(WANDB, "come from W&B"), (None, "come with the result, at the end")])
def test_an_unreachable_trainer_is_reported_once(wandb: WandbRun | None, source: str) -> None:
    unheard = after(WORKING, trainer=None, unreachable=True, wandb=wandb)
    status = status_of(unheard)
    assert "cannot read the metrics" in status.message
    assert source in status.message
    assert status.phase == "Running"
    assert status_of(after(unheard)) == status, "the same words, however long it lasts"


def test_figures_that_a_step_does_not_know_are_not_those_of_an_earlier_one() -> None:
    """Tokens that nobody knows have no gap and no staleness."""
    known = ObservedTrainer(step=12, metrics=RunMetrics(rollout_reward=0.5, loss=-0.1, logprob_gap=2e-6, staleness=0.5))
    unknown = ObservedTrainer(step=13, metrics=RunMetrics(loss=-0.2))
    before = replace(WORKING, trainer=known)
    found = metrics(after(before, trainer=unknown))
    assert (found.rollout_reward, found.loss, found.logprob_gap, found.staleness) == (0.5, -0.2, None, None)


EVALUATED = RunMetrics(rollout_reward=0.5, held_out=EvaluatedFigure(value=0.3, low=0.2, high=0.4, samples=64, step=11))


@pytest.mark.parametrize(
    ("told", "known"),
    [
        (RunMetrics(held_out=EvaluatedFigure(value=0.9)), EvaluatedFigure(value=0.9)),
        (RunMetrics(held_out=EvaluatedFigure(value=0.9, step=13)), EvaluatedFigure(value=0.9, step=13)),
        (RunMetrics(held_out=EvaluatedFigure(value=0.3, step=13)), EvaluatedFigure(value=0.3, step=13)),
        (RunMetrics(held_out=EvaluatedFigure(value=0.3), rollout_reward=0.6), EVALUATED.held_out),
        (RunMetrics(rollout_reward=0.6), EVALUATED.held_out),
    ],
    ids=["another", "another, with its step", "another, as good", "the same", "none"],
)
def test_an_evaluation_has_no_figures_of_another(told: RunMetrics, known: EvaluatedFigure | None) -> None:
    before = replace(WORKING, trainer=ObservedTrainer(step=12, total_steps=40, metrics=EVALUATED))
    found = metrics(after(before, trainer=None, unreachable=True, wandb=WandbRun("running", step=20, metrics=told)))
    assert found.known == {"rollout_reward": told.rollout_reward or 0.5, "held_out": known}


def told_figures(step: int, *figures: tuple[str, float]) -> dict[str, Any]:
    rows = [
        {"metric": f"eval/{name}", "value": value, "low": value - 0.1, "high": value + 0.1, "samples": 64}
        for name, value in figures
    ]
    return {"metrics": {"heldOut": {"value": 0.5, "step": step}}, "evaluation": {"step": step, "figures": rows}}


FIGURES = (("percent_correct", 0.5), ("pass_at_4", 0.8123), ("hard/percent_correct", 0.2))


def test_all_figures_of_an_evaluation_as_the_trainer_tells_them() -> None:
    trainer = ObservedTrainer.model_validate({"step": 12, "totalSteps": 40, **told_figures(11, *FIGURES)})
    found = status_of(after(WORKING, trainer=trainer)).evaluation
    assert (found.step, [each.name for each in found.figures]) == (11, [name for name, _ in FIGURES])
    assert found.figures[1] == EvaluatedFigure.model_validate(told_figures(11, *FIGURES)["evaluation"]["figures"][1])
    silent = after(after(WORKING, trainer=trainer), trainer=TRAINER)
    assert status_of(silent).evaluation == found, "one that evaluated nothing itself takes nothing back"
    next_one = ObservedTrainer.model_validate(
        {"step": 20, "totalSteps": 40, "metrics": {"heldOut": {"value": 0.5, "step": 20}}}
    )
    assert status_of(after(silent, trainer=next_one)).evaluation is None, "that has one figure only"
    assert continued(status_of(silent), 10).evaluation is None, "its weights are lost"
    assert continued(status_of(silent), 11).evaluation == found


@pytest.mark.parametrize(
    ("step", "kept", "more", "shown"),
    [(40, 2, 1, 2), (11, 2, 1, 3), (11, 0, 0, 3), (40, 0, 0, 0)],
    ids=["a newer evaluation", "the same with less room", "the same without room", "a newer one without room"],
)
def test_a_result_tells_them_as_far_as_they_have_room(step: int, kept: int, more: int, shown: int) -> None:
    trainer = ObservedTrainer.model_validate({"step": 12, "totalSteps": 40, **told_figures(11, *FIGURES)})
    told = told_figures(step, *FIGURES[:kept])
    told["evaluation"] = told["evaluation"] | {"more": more} if kept else None
    pod = make_pod(ready(), terminated(0, result(**told)), terminated(0), phase="Succeeded")
    found = status_of(after(after(WORKING, trainer=trainer), pod=pod)).evaluation
    assert (len(found.figures) if found else 0) == shown
    assert found is None or (found.step, found.more) == (step, more if shown == kept else 0)


def test_a_figure_that_is_not_a_number_is_left_out() -> None:
    told = {"step": 3, "figures": [{"metric": "eval/a", "value": None}, {"metric": "eval/b", "value": 0.5}]}
    trainer = ObservedTrainer.model_validate({"evaluation": told, "metrics": {"heldOut": {"value": 0.5, "step": 3}}})
    found = status_of(after(WORKING, trainer=trainer)).evaluation
    assert found == EvaluatedFigures(step=3, figures=(EvaluatedFigure(metric="eval/b", value=0.5),), more=1)


def test_a_new_time_alone_is_not_written() -> None:
    assert status_of(after(WORKING)) == status_of(WORKING)
    assert metrics(after(WORKING)).observed_at == "2026-05-01T12:00:00Z"


def test_a_new_step_with_the_same_metrics_is_news() -> None:
    step = metrics(after(WORKING, trainer=TRAINER.with_changes(step=13)))
    assert (step.rollout_reward, step.observed_at) == (0.7123, "2026-05-01T12:01:00Z")


def test_a_metric_that_is_not_a_number_is_left_out() -> None:
    odd = TRAINER.with_changes(metrics=RunMetrics(rollout_reward=float("nan"), loss=float("inf")))
    assert status_of(replace(WORKING, trainer=odd)).metrics is None


CONTINUED = {
    **RUNNING,
    "attempt": 2,
    "checkpoint": {"step": 60, "statePath": "tinker://m/weights/60"},
    "progress": {
        "step": 68,
        "fromStep": 40,
        "totalSteps": 150,
        "percent": 45,
        "secondsPerStep": 2.0,
        "etaSeconds": 164,
    },
    "metrics": {
        "rolloutReward": 0.95,
        "baseline": {"value": 0.5},
        "heldOut": {"value": 0.9, "step": 50},
        "source": "trainer",
    },
    "history": [{"step": 10, "rolloutReward": 0.2}, {"step": 65, "rolloutReward": 0.9}],
}


def of_attempt(**changes: Any) -> RunStatus:
    """The status when the next attempt of CONTINUED is announced."""
    view = make_view({**CONTINUED, **changes})
    return started(view, attempt=3, pod_name="p", config_map_name="c", config_hash="h")


def test_an_attempt_begins_with_its_checkpoint() -> None:
    status = of_attempt()
    assert status.progress == Progress(step=60, from_step=60, total_steps=150, percent=40)
    assert status.metrics == RunMetrics(
        baseline=EvaluatedFigure(value=0.5), held_out=EvaluatedFigure(value=0.9, step=50), source="trainer"
    )
    assert [sample.step for sample in status.history] == [10]
    assert status.checkpoint is not None


@pytest.mark.parametrize("evaluated", [{"heldOut": {"value": 0.9, "step": 65}}, {}])
def test_an_evaluation_of_weights_that_are_lost_is_not_shown(evaluated: dict[str, int]) -> None:
    metrics = {"rolloutReward": 0.95, "heldOut": {"value": 0.9}, "source": "trainer", **evaluated}
    assert of_attempt(metrics=metrics).metrics is None


def test_an_attempt_without_a_checkpoint_begins_at_0() -> None:
    status = of_attempt(checkpoint=None)
    assert status.progress == Progress(step=0, total_steps=150, percent=0)
    assert (status.checkpoint, status.history) == (None, ())


@pytest.mark.parametrize(
    ("from_step", "checkpoint"),
    [
        (60, {"step": 60, "statePath": "tinker://m/weights/60"}),
        (0, None),
        (64, {"step": 64, "statePath": "tinker://x"}),
    ],
)
def test_the_trainer_knows_where_its_attempt_began(from_step: int, checkpoint: dict[str, Any] | None) -> None:
    """Earlier if a checkpoint was lost and it may restart; later if it found a newer one."""
    begun = of_attempt().to_wire()
    told = {"step": from_step + 2, "fromStep": from_step, "totalSteps": 150, "metrics": {"rolloutReward": 0.3}}
    trainer = ObservedTrainer.model_validate({**told, "checkpoint": checkpoint})
    status = status_of(make_view({**RUNNING, **begun}, pod=TRAINING, trainer=trainer))
    assert (status.progress.from_step, status.progress.step) == (from_step, from_step + 2)
    held_out = status.metrics.held_out
    assert (status.metrics.rollout_reward, held_out and held_out.step) == (0.3, 50 if from_step else None)
    assert (status.checkpoint.step if status.checkpoint else None) == (checkpoint["step"] if checkpoint else None)


def test_a_history_is_named_at_an_end_if_there_is_one() -> None:
    over = make_pod(ready(), terminated(0, result()), terminated(0), phase="Succeeded")
    assert status_of(after(WORKING, trainer=None, pod=over)).history_name is None
    assert status_of(after(WORKING, trainer=None, pod=over, has_history=True)).history_name == "sorting-u-1-history"
    assert status_of(after(WORKING, has_history=True)).history_name is None


BEST = {
    "step": 50,
    "heldOut": {"value": 0.9},
    "statePath": "tinker://m/weights/50",
    "samplerPath": "tinker://m/sampler_weights/50",
}
NEWER = {**BEST, "step": 64, "heldOut": {"value": 0.95}}


@pytest.mark.parametrize(
    ("from_step", "told", "best"),
    [
        pytest.param(None, None, 50, id="its training is not open yet"),
        pytest.param(60, BEST, 50, id="the same"),
        pytest.param(60, NEWER, 64, id="a better one"),
        pytest.param(0, None, None, id="the backend lost it"),
    ],
)
def test_the_best_weights_outlive_an_attempt_as_long_as_the_backend_has_them(
    from_step: int | None, told: dict[str, Any] | None, best: int | None
) -> None:
    begun = of_attempt(best=BEST).to_wire()
    assert begun["best"]["step"] == 50
    trainer = ObservedTrainer.model_validate({"step": 62, "fromStep": from_step, "totalSteps": 150, "best": told})
    status = status_of(make_view({**RUNNING, **begun}, pod=TRAINING, trainer=trainer))
    assert (status.best.step if status.best else None) == best


def test_a_result_leaves_out_what_it_says_already() -> None:
    """The best weights are the last ones: their paths are the result's own."""
    told = {"outcome": "succeeded", "fromStep": 0, "statePath": "tinker://m/s", "samplerPath": "tinker://m/w"}
    found = TrainerResult.model_validate({**told, "best": {"step": 150, "heldOut": {"value": 0.9}}})
    assert (found.best_checkpoint.state_path, found.best_checkpoint.sampler_path) == ("tinker://m/s", "tinker://m/w")
    nowhere = TrainerResult.model_validate({"outcome": "running", "best": {"step": 150, "heldOut": {"value": 0.9}}})
    assert nowhere.best_checkpoint is None


PAID = TRAINER.with_changes(cost=RunCost(amount=1.23456, currency="USD", budget=5.0))


def test_the_cost_is_shown_as_the_trainer_tells_it_and_never_falls() -> None:
    view = replace(WORKING, trainer=PAID)
    assert status_of(view).cost == RunCost(amount=1.2346, currency="USD", budget=5.0)
    less = PAID.with_changes(cost=RunCost(amount=1.0, currency="USD"))
    assert status_of(after(view, trainer=less)).cost == RunCost(amount=1.2346, currency="USD")
    assert status_of(after(view, trainer=TRAINER)).cost == status_of(view).cost, "one that does not know it"


def test_a_result_tells_the_cost_and_the_next_attempt_keeps_it() -> None:
    paid = result(cost={"amount": 3.5, "currency": "EUR"}, outcome="running", stepsTrained=12)
    view = replace(WORKING, pod=ended_pod(terminated(1, paid)), trainer=None)
    found = status_of(view)
    assert found.cost == RunCost(amount=3.5, currency="EUR")
    again = started(
        replace(view, run=view.run.with_changes(status=found)),
        attempt=2, pod_name="p-2", config_map_name="c", config_hash="h",
    )  # fmt: skip
    assert again.cost == found.cost


ITEMS = ItemAccount(seen=9, trained=6, dropped={"equal": 1}, under_way=2)


def test_the_items_are_as_the_trainer_and_at_the_end_the_result_tells_them() -> None:
    counted = replace(WORKING, trainer=TRAINER.with_changes(items=ITEMS))
    assert status_of(counted).items == ITEMS
    assert not worth_writing(status_of(WORKING), status_of(counted), NOW, 60.0), "they are no reason to write at once"
    assert status_of(after(counted, trainer=TRAINER)).items == ITEMS, "one that has not asked yet"
    last = ITEMS.with_changes(trained=8, under_way=0)
    ended = replace(counted, pod=ended_pod(terminated(0, result(items=last.to_wire()))), trainer=None)
    assert status_of(ended).items == last


@pytest.mark.parametrize(("step", "items"), [(64, None), (65, ITEMS)])
def test_an_account_of_steps_that_are_lost_is_not_shown(step: int, items: ItemAccount | None) -> None:
    progress = Progress(step=65, total_steps=150, percent=43)
    assert continued(RunStatus(progress=progress, items=ITEMS), step).items == items


def test_a_cost_that_grows_is_no_reason_to_write_at_once() -> None:
    before = status_of(replace(WORKING, trainer=PAID))
    grown = before.with_changes(cost=RunCost(amount=2.0, currency="USD"))
    assert not worth_writing(before, grown, NOW, 60.0)
    assert worth_writing(before, grown, NOW + timedelta(seconds=61), 60.0)
