import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.tools.contexts import Call, Unattended, call_at, drafted, refusal

from rl_operator.api.names import API_VERSION, RUN_KIND
from rl_operator.local.state.layout import Layout
from rl_operator.operator_errors import TargetUnreachableError
from rl_operator.tools.call_context import CallContext

START = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)
KIND = {"apiVersion": API_VERSION, "kind": RUN_KIND}
STARTED = "2026-11-22T00:30:00Z"


class Counting(Unattended):
    """Counts the reads of runs; `meanwhile` happens before each."""

    reads = 0
    meanwhile: Callable[[int], object] = staticmethod(lambda _: None)

    def run(self, namespace: str, name: str) -> dict[str, Any] | None:
        self.meanwhile(self.reads)
        self.reads += 1
        return super().run(namespace, name)


class Clock:
    now = START


@pytest.fixture
def waiting_clock() -> Clock:
    return Clock()


@pytest.fixture
def counting_target(tmp_path: Path) -> Counting:
    found = Counting(Layout(tmp_path), "", print)
    found.poll_seconds = 0.01
    return found


@pytest.fixture
def context(counting_target: Counting, waiting_clock: Clock) -> CallContext:
    return CallContext(counting_target, "default", now=lambda: waiting_clock.now)


@pytest.fixture
def run_id(context: CallContext) -> str:
    """Of a training run."""
    name = drafted(context)
    context.target.change_spec("default", name, {"suspend": False})
    at_step(context, name, 1)
    return name


def at_step(context: CallContext, name: str, step: int, **status: Any) -> None:
    progress = {"step": step, "totalSteps": 40, "percent": step, "secondsPerStep": 1.0, "etaSeconds": 400}
    trains = {"phase": "Running", "observedGeneration": 2, "startTime": STARTED, "progress": progress, **status}
    assert isinstance(context.target, Counting)
    context.target._store.update("RLTrainingRun", "default", name, lambda run: run.update(status=trains))


def test_an_early_poll_gets_the_same_answer_and_costs_nothing(
    context: CallContext, call: Call, counting_target: Counting, waiting_clock: Clock, run_id: str
) -> None:
    first = call("rl_check_status", run_id=run_id[-8:]).answer
    assert first["next_check_in_seconds"] == 40
    reads = counting_target.reads
    at_step(context, run_id, 2)
    waiting_clock.now += timedelta(seconds=25)
    for name in (run_id, run_id[-8:]):
        again = call("rl_check_status", run_id=name).answer
        assert again == first | {"rate_limited": True, "next_check_in_seconds": 15}
    assert counting_target.reads == reads


def test_a_poll_that_is_due_is_fresh(context: CallContext, call: Call, waiting_clock: Clock, run_id: str) -> None:
    call("rl_check_status", run_id=run_id)
    at_step(context, run_id, 2)
    waiting_clock.now += timedelta(seconds=40)
    answer = call("rl_check_status", run_id=run_id).answer
    assert answer["progress"]["step"] == 2
    assert "rate_limited" not in answer


def test_a_clock_set_back_holds_no_answer_back(
    context: CallContext, call: Call, waiting_clock: Clock, run_id: str
) -> None:
    call("rl_check_status", run_id=run_id)
    at_step(context, run_id, 2)
    waiting_clock.now -= timedelta(days=2)
    answer = call("rl_check_status", run_id=run_id).answer
    assert answer["progress"]["step"] == 2
    assert "rate_limited" not in answer


def test_no_answer_is_repeated_for_longer_than_a_minute(
    context: CallContext, call: Call, waiting_clock: Clock, run_id: str
) -> None:
    progress = {"step": 1, "totalSteps": 2500, "percent": 1, "secondsPerStep": 60.0, "etaSeconds": 150_000}
    at_step(context, run_id, 1, progress=progress)
    assert call("rl_check_status", run_id=run_id).answer["next_check_in_seconds"] == 1800
    waiting_clock.now += timedelta(seconds=60)
    assert "rate_limited" not in call("rl_check_status", run_id=run_id).answer


def test_waiting_or_a_change_gets_a_fresh_answer(context: CallContext, call: Call, run_id: str) -> None:
    call("rl_check_status", run_id=run_id)
    at_step(context, run_id, 2)
    assert call("rl_check_status", run_id=run_id, wait_seconds=5, until="step").answer["progress"]["step"] == 2
    at_step(context, run_id, 2, phase="Stopped", observedGeneration=3)
    call("rl_stop_training", run_id=run_id)
    assert "rate_limited" not in call("rl_check_status", run_id=run_id).answer


def test_a_draft_is_never_rate_limited(call: Call, context: CallContext) -> None:
    name = drafted(context)
    for _ in range(2):
        answer = call("rl_check_status", run_id=name).answer
        assert answer["status"] == "draft"
        assert "rl_start_training" in answer["message"]
        assert not {"rate_limited", "next_check_in_seconds"} & set(answer)


def test_an_answer_about_one_run_is_not_reused_for_another(context: CallContext, call: Call) -> None:
    """A run whose name is the suffix of another's."""
    for name in ("digits-trainers", "trainers"):
        metadata = {"name": name, "namespace": "default"}
        spec = {"environment": "sort_digits", "runtime": "tiny"}
        context.target.create({**KIND, "metadata": metadata, "spec": {**spec, "suspend": True}})
        context.target.change_spec("default", name, {"suspend": False})
        at_step(context, name, 1)
    call("rl_check_status", run_id="digits-trainers")
    answer = call("rl_check_status", run_id="trainers").answer
    assert answer["run_id"] == "trainers"
    assert "rate_limited" not in answer


def test_a_short_outage_of_the_target_does_not_end_a_wait(
    context: CallContext, call: Call, counting_target: Counting, run_id: str
) -> None:
    looks = iter((False, True, True))

    def meanwhile(_: int) -> None:
        is_away = next(looks, None)
        if is_away:
            raise TargetUnreachableError("the API server does not answer")
        if is_away is None:
            at_step(context, run_id, 2)

    counting_target.meanwhile = meanwhile
    assert call("rl_check_status", run_id=run_id, wait_seconds=60, until="step").answer["progress"]["step"] == 2


def test_a_wait_during_a_long_outage_may_be_retried(call: Call, counting_target: Counting, run_id: str) -> None:
    def meanwhile(reads: int) -> None:
        if reads:
            raise TargetUnreachableError("the API server does not answer")

    counting_target.reads, counting_target.meanwhile = 0, meanwhile
    outcome = call("rl_check_status", run_id=run_id, wait_seconds=0.05)
    assert (outcome.code, outcome.answer["retryable"]) == ("unreachable", True)


def test_each_agents_polls_are_its_own(context: CallContext, call: Call, run_id: str) -> None:
    call("rl_check_status", run_id=run_id)
    other = replace(context, agent="another")
    assert "rate_limited" not in call_at(other, "rl_check_status", run_id=run_id).answer


def test_waiting_costs_one_read_per_poll_and_ends_with_news(
    context: CallContext, call: Call, counting_target: Counting, run_id: str
) -> None:
    counting_target.reads = 0
    counting_target.meanwhile = lambda reads: at_step(context, run_id, 2) if reads == 5 else None
    answer = call("rl_check_status", run_id=run_id, wait_seconds=60, until="step").answer
    assert answer["progress"]["step"] == 2
    assert counting_target.reads == 6


def test_news_is_relative_to_the_caller(
    context: CallContext, call: Call, counting_target: Counting, run_id: str
) -> None:
    """It may have happened between two calls."""
    call("rl_check_status", run_id=run_id)
    at_step(context, run_id, 1, checkpoint={"step": 1, "statePath": "tinker://s"})
    counting_target.reads = 0
    assert call("rl_check_status", run_id=run_id, wait_seconds=60).answer["checkpoint_step"] == 1
    assert counting_target.reads == 1


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Succeeded"}, id="finished"),
        pytest.param({"phase": "Failed"}, id="failed"),
        pytest.param({"phase": "Stopped"}, id="stopped"),
        pytest.param(
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "Accepted", "status": "False", "reason": "LockedField", "lastTransitionTime": STARTED}
                ],
            },
            id="refused",
        ),
    ],
)
def test_a_run_at_rest_ends_every_wait(
    context: CallContext, call: Call, counting_target: Counting, run_id: str, status: dict[str, Any]
) -> None:
    at_step(context, run_id, 1, **status)
    counting_target.reads = 0
    assert call("rl_check_status", run_id=run_id, wait_seconds=240, until="step").code is None
    assert counting_target.reads == 1


@pytest.mark.parametrize("phase", ["Stopped", "Succeeded", "draft"])
def test_waiting_again_for_a_run_at_rest_is_paced(
    context: CallContext, counting_target: Counting, waiting_clock: Clock, phase: str
) -> None:
    """A loop that knows only completed and failed must not spin."""
    name, hasty = drafted(context), replace(context, longest_wait=0.05)
    if phase != "draft":
        context.target.change_spec("default", name, {"suspend": False})
        at_step(context, name, 1, phase=phase)
    counting_target.reads = 0
    assert "rate_limited" not in call_at(hasty, "rl_check_status", run_id=name, wait_seconds=50).answer
    assert counting_target.reads == 1
    assert call_at(hasty, "rl_check_status", run_id=name, wait_seconds=50).answer["rate_limited"] is True
    assert counting_target.reads > 2
    assert "rate_limited" not in call_at(hasty, "rl_check_status", run_id=name).answer
    waiting_clock.now += timedelta(minutes=2)
    counting_target.reads = 0
    assert "rate_limited" not in call_at(hasty, "rl_check_status", run_id=name, wait_seconds=50).answer
    assert counting_target.reads == 1


def test_a_paced_wait_ends_with_news(context: CallContext, call: Call, counting_target: Counting, run_id: str) -> None:
    at_step(context, run_id, 1, phase="Stopped")
    call("rl_check_status", run_id=run_id, wait_seconds=50)
    counting_target.reads = 0
    counting_target.meanwhile = lambda reads: at_step(context, run_id, 1, phase="Running") if reads == 3 else None
    answer = call("rl_check_status", run_id=run_id, wait_seconds=50).answer
    assert (answer["status"], counting_target.reads) == ("running", 4)
    assert "rate_limited" not in answer


def test_steps_and_metrics_are_not_changes(
    context: CallContext, call: Call, counting_target: Counting, run_id: str
) -> None:
    metrics = [{"rolloutReward": 0.1}, {"rolloutReward": 0.2}, {"rolloutReward": 0.2, "heldOut": {"value": 0.5}}]
    counting_target.reads = 0
    counting_target.meanwhile = lambda reads: at_step(
        context, run_id, reads + 1, metrics=metrics[min(reads, 2)], message=f"Training: step {reads}."
    )
    answer = call("rl_check_status", run_id=run_id, wait_seconds=60).answer
    assert answer["metrics"]["eval_percent_correct"] == 0.5
    assert counting_target.reads == 3


def test_waiting_ends_with_the_deadline(call: Call, run_id: str, counting_target: Counting) -> None:
    outcome = call("rl_check_status", run_id=run_id, wait_seconds=0.05, until="finished")
    assert outcome.answer["status"] == "running"
    assert counting_target.reads > 1


def test_waiting_ends_with_the_servers_limit(context: CallContext, run_id: str) -> None:
    hasty = replace(context, longest_wait=0.05)
    assert call_at(hasty, "rl_check_status", run_id=run_id, wait_seconds=240, until="finished").code is None


def test_waiting_ends_when_the_caller_has_left(context: CallContext, run_id: str, counting_target: Counting) -> None:
    given_up = threading.Event()
    given_up.set()
    counting_target.reads = 0
    call_at(replace(context, given_up=given_up), "rl_check_status", run_id=run_id, wait_seconds=240, until="finished")
    assert counting_target.reads == 1


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
def test_deleting_the_run_ends_the_wait(
    context: CallContext, call: Call, counting_target: Counting, run_id: str, again: bool
) -> None:
    manifest = counting_target.run("default", run_id)
    assert manifest

    def delete(reads: int) -> None:
        if reads == 3:
            counting_target._store.delete("RLTrainingRun", "default", run_id)
            fresh = {"name": run_id, "namespace": "default"}
            _ = again and counting_target._store.create({**manifest, "metadata": fresh, "status": {}})

    counting_target.reads, counting_target.meanwhile = 0, delete
    outcome = call("rl_check_status", run_id=run_id, wait_seconds=240, until="finished")
    assert (outcome.code, outcome.answer["retryable"]) == ("not_found", False)
    assert "was deleted meanwhile" in outcome.answer["error"]


@pytest.mark.parametrize("arguments", [{"wait_seconds": 241}, {"wait_seconds": -1}, {"until": "later"}, {"run_id": ""}])
def test_invalid_arguments_are_refused(call: Call, arguments: dict[str, Any]) -> None:
    assert next(iter(arguments)) in refusal(call("rl_check_status", **{"run_id": "x", **arguments}))["error"]
