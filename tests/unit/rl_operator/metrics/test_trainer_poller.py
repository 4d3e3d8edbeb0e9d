"""Real trainers' ops ports on loopback addresses, polled over HTTP."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from tests.unit.rl_operator.metrics.trainers import POD, UP, endless, pod_at, polling, serving, until_asked
from tests.unit.rl_operator.patience import until
from tests.unit.rl_operator.status.builders import make_environment, make_pod, ready, running

from rl_contract.status_metrics import HISTORY_METRICS, MAX_POINTS
from rl_operator.metrics.trainer_poller import SILENT_POLLS, STATUS_BYTES, PolledHistory, pod_ops_url
from rl_operator.status.observed.history import read_points
from rl_operator.status.observed.observation import ObservedTrainer


async def test_only_news_is_reported() -> None:
    async with serving() as trainer, polling(trainer.port, [POD]) as (poller, changed):
        await until_asked(trainer, 4)
        assert changed == [POD.uid]
        trainer.answer = {**UP, "step": 2}
        await until_asked(trainer, 2)
        assert changed == [POD.uid, POD.uid]
        status = poller.status_of(POD)
        assert (status.step, status.total_steps) == (2, 40)


async def test_each_trainer_is_asked_with_the_token_of_its_pod() -> None:
    held = replace(POD, ops_token="t0ken-of-this-pod")
    async with serving() as trainer, polling(trainer.port, [held]) as (poller, _):
        trainer.points = [{"step": 1}]
        await until("the history is read", lambda: poller.has_points(held))
    assert trainer.tokens == {("/status", "t0ken-of-this-pod"), ("/history", "t0ken-of-this-pod")}
    assert "t0ken" not in repr(held)


async def test_no_trainer_is_polled_more_often_than_the_interval() -> None:
    """Even when others come and go, which changes the order. Requests may be late, and two of them close together for
    that reason, but none is ever early.
    """
    interval, begun = 0.2, asyncio.get_running_loop().time()
    pods = [pod_at(f"p-{number}", address=f"127.0.0.{number}") for number in range(1, 5)]
    async with serving("0.0.0.0") as trainer, polling(trainer.port, pods, interval_seconds=interval):
        await until_asked(trainer, 4)
        for _ in range(3):
            pods.append(pods.pop(0))
            await until_asked(trainer, 3)
        pods[:3] = []
        await until_asked(trainer, 3)
    for moments in trainer.asked_at.values():
        assert all(moment - begun >= count * interval - 1e-3 for count, moment in enumerate(moments)), moments


NONSENSE: dict[str, Any] = {
    "no JSON": lambda: web.Response(text="<html>"),
    "a list": [],
    "steps that are none": {**UP, "step": "many"},
    "steps without end": {**UP, "step": 10**12},
    "a time that is none": {**UP, "lastStepAt": "yesterday"},
    "a time of no zone": {**UP, "lastStepAt": "2026-05-01T12:00:00"},
    "a mesh's refusal": lambda: web.Response(status=503, text="upstream connect error"),
    "a way to somebody else": lambda: web.Response(status=302, headers={"Location": "/history"}),
    "too much": {**UP, "waiting": "x" * STATUS_BYTES},
    "more than we read, forever": endless,
    "another run's": {**UP, "runUid": "u-2", "attempt": 1},
    "another attempt's": {**UP, "runUid": "u-1", "attempt": 2},
    "nobody's": {**UP, "runUid": None},
    "no attempt's": {**UP, "attempt": None},
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
async def test_an_invalid_answer_counts_as_silence(answer: Any) -> None:
    async with serving() as trainer, polling(trainer.port, [POD]) as (poller, changed):
        trainer.answer = answer
        await until("it counts as silent", lambda: poller.unreachable(POD))
        assert poller.status_of(POD) is None
        trainer.answer = {**UP, "runUid": "u-1", "attempt": 1}
        await until("it is heard", lambda: poller.status_of(POD) is not None)
        assert changed == [POD.uid, POD.uid]


async def test_three_silent_polls_of_a_ready_trainer_are_reported_once_and_its_return_too() -> None:
    async with serving() as trainer:
        port = trainer.port
        async with polling(port, [POD]) as (poller, changed):
            await until("heard", lambda: poller.status_of(POD) is not None)
            trainer.answer = lambda: web.Response(status=500)
            await until("given up", lambda: poller.unreachable(POD))
            await until_asked(trainer, SILENT_POLLS + 1)
            assert (changed, poller.status_of(POD)) == ([POD.uid] * 2, None)
            trainer.answer = UP
            await until("heard again", lambda: not poller.unreachable(POD))
            assert changed == [POD.uid] * 3
            assert poller.status_of(POD) is not None


async def test_a_trainer_that_is_not_ready_is_not_reported() -> None:
    starting = make_pod(ready(), running(), ready(), podIP="127.0.0.1")
    async with serving() as trainer, polling(trainer.port, [starting]) as (poller, changed):
        trainer.answer = None
        await until_asked(trainer, SILENT_POLLS + 2)
        assert not poller.unreachable(starting)
        assert changed == []


async def test_a_trainer_that_starts_and_is_not_heard_for_long_is_reported_once(monkeypatch) -> None:
    """The kubelet may reach it where a NetworkPolicy keeps us out."""
    monkeypatch.setattr("rl_operator.metrics.trainer_poller.STARTING_SILENCE_SECONDS", 0.1)
    starting = make_pod(ready(), running(), ready(), podIP="127.0.0.1")
    async with serving() as trainer, polling(trainer.port, [starting]) as (poller, changed):
        trainer.answer = None
        await until("given up", lambda: poller.unheard(starting))
        await until_asked(trainer, SILENT_POLLS + 1)
        assert changed == [starting.uid]
        assert not poller.unreachable(starting), "it is not ready"
        trainer.answer = {**UP, "phase": "starting", "waiting": "a key"}
        await until("heard", lambda: not poller.unheard(starting))
        assert changed == [starting.uid] * 2


async def test_a_trainer_that_starts_is_asked_often(monkeypatch) -> None:
    """Others wait for a minute: it does not, and does not wait for them either."""
    monkeypatch.setattr("rl_operator.metrics.trainer_poller.STARTING_SECONDS", 0.02)
    pods = [POD, replace(make_pod(ready(), running(), ready(), podIP="127.0.0.2"), uid="starts")]
    async with serving("0.0.0.0") as trainer, polling(trainer.port, pods, interval_seconds=60.0) as (_, changed):
        await until_asked(trainer, 6)
        assert len(trainer.asked_at["127.0.0.1"]) <= 1
        assert "starts" in changed


WAITING = {**UP, "phase": "starting", "waiting": "the trainer waits for its backend", "backendSilent": True}
STARTING = make_pod(ready(), running(), ready(), podIP="127.0.0.1")


async def test_what_it_waited_for_is_not_said_of_a_trainer_that_is_ready(monkeypatch) -> None:
    """It may not be asked again for half a minute."""
    monkeypatch.setattr("rl_operator.metrics.trainer_poller.STARTING_SECONDS", 0.02)
    pods = [STARTING]
    async with serving() as trainer, polling(trainer.port, pods, interval_seconds=60.0) as (poller, changed):
        trainer.answer = WAITING
        await until("heard", lambda: poller.status_of(STARTING) is not None)
        said = poller.status_of(STARTING)
        assert (said.waiting, said.backend_silent) == ("The trainer waits for its backend.", True)
        outdated = poller.status_of(POD)
        assert (outdated.waiting, outdated.backend_silent, outdated.total_steps) == (None, False, 40)

        pods[:], reports = [POD], len(changed)
        trainer.answer = {**UP, "phase": "sampling"}
        await until("it is asked at once", lambda: poller.status_of(POD).phase == "sampling")
        assert len(changed) > reports


async def test_what_a_ready_trainer_waits_for_is_said_also_if_it_said_so_before(monkeypatch) -> None:
    monkeypatch.setattr("rl_operator.metrics.trainer_poller.STARTING_SECONDS", 0.02)
    pods = [STARTING]
    async with serving() as trainer, polling(trainer.port, pods, interval_seconds=60.0) as (poller, changed):
        trainer.answer = WAITING
        await until("heard", lambda: poller.status_of(STARTING) is not None)
        pods[:] = [POD]
        await until("it is said of a ready one", lambda: poller.status_of(POD).waiting)
        assert len(changed) == 2


async def test_a_trainer_that_is_silent_once_it_is_ready_is_not_given_up_any_sooner(monkeypatch) -> None:
    monkeypatch.setattr("rl_operator.metrics.trainer_poller.STARTING_SECONDS", 0.02)
    pods = [STARTING, pod_at("starts", containers=STARTING.containers, address="127.0.0.2")]
    async with serving("0.0.0.0") as trainer, polling(trainer.port, pods, interval_seconds=60.0) as (poller, _):
        trainer.answer = WAITING
        await until("heard", lambda: poller.status_of(STARTING) is not None)
        pods[0], trainer.answer = POD, None
        await until("the other was asked often since", lambda: len(trainer.asked_at["127.0.0.2"]) > 20)
        assert not poller.unreachable(POD)


async def test_a_trainer_that_falls_silent_at_its_end_keeps_its_last_answer() -> None:
    pods = [POD]
    async with serving() as trainer, polling(trainer.port, pods) as (poller, changed):
        await until("heard", lambda: poller.status_of(POD) is not None)
        pods[:] = [make_pod(ready(), running(), ready(), podIP="127.0.0.1")]
        trainer.answer = lambda: web.Response(status=500)
        await until_asked(trainer, SILENT_POLLS + 2)
        assert poller.status_of(POD) is not None
        assert changed == [POD.uid]


async def test_slow_trainers_do_not_delay_the_others() -> None:
    """They accept the connection and never answer: the others are polled at their pace all the while."""
    slow = [pod_at(f"slow-{number}", address="127.0.0.2") for number in range(60)]
    async with serving() as trainer, serving("127.0.0.2", trainer.port) as stuck:
        stuck.delay = 60.0
        async with polling(trainer.port, [*slow, POD], interval_seconds=0.3) as (poller, _):
            await until("all are asked", lambda: len(stuck.asked) == len(slow))
            await until_asked(trainer, 3)
            assert poller.status_of(POD) is not None
            assert len(stuck.asked) == len(slow), "who has not answered yet is not asked again"


async def test_a_pod_with_a_new_address_is_polled_there() -> None:
    pods = [pod_at("p-1", address="127.255.255.1")]
    async with serving() as trainer, polling(trainer.port, pods) as (poller, _):
        await until("given up", lambda: poller.unreachable(POD))
        pods[:] = [POD]
        await until("heard", lambda: poller.status_of(POD) is not None)


async def test_finished_pods_and_pods_without_address_are_not_polled() -> None:
    pods = [replace(POD, phase="Succeeded"), pod_at("p-3", address=None)]
    async with serving() as trainer, polling(trainer.port, pods) as (poller, _):
        pods.append(pod_at("p-4"))
        await until_asked(trainer, 2)
        assert [poller.status_of(pod) is None for pod in pods] == [True, True, False]


async def test_missing_pods_are_forgotten() -> None:
    pods = [POD]
    async with serving() as trainer, polling(trainer.port, pods) as (poller, _):
        await until_asked(trainer, 2)
        pods[:] = [pod_at("p-5")]
        await until("forgotten", lambda: poller.status_of(POD) is None)


ADDRESSES = {"10.0.0.7": "http://10.0.0.7:8002", "fd00::7": "http://[fd00::7]:8002", None: None}


@pytest.mark.parametrize(("address", "url"), ADDRESSES.items())
def test_the_ops_port_of_a_pod(address: str | None, url: str | None) -> None:
    assert pod_ops_url(replace(POD, address=address)) == url


async def test_only_pods_of_runs_are_polled() -> None:
    """An environment pod has no trainer in it."""
    environment = make_environment(1, 0, ready(), podIP="127.0.0.1")
    async with serving() as trainer, polling(trainer.port, [environment, POD]) as (poller, changed):
        await until_asked(trainer, 3)
        assert (changed, poller.status_of(environment)) == ([POD.uid], None)


# --- the history --------------------------------------------------------------------------------------------------
def curve(*steps: int) -> list[dict[str, float]]:
    return [{"step": step, "rolloutReward": step / 100, "train/loss": 0.1} for step in steps]


async def test_the_history_is_read_as_the_run_advances_and_before_it_ends() -> None:
    async with serving() as trainer, polling(trainer.port, [POD]) as (poller, _):
        trainer.points = curve(1)
        await until("the first is there", lambda: poller.has_points(POD))
        await until_asked(trainer, 3)
        assert trainer.read == 1
        for step, phase, reads in ((2, "training", 1), (3, "training", 2), (4, "training", 2), (4, "saving", 3)):
            trainer.points, trainer.answer = curve(*range(1, step + 1)), {**UP, "step": step, "phase": phase}
            await until_asked(trainer, 3)
            assert trainer.read == reads, (step, phase)
        assert [point["step"] for point in poller.points(POD)] == [1, 2, 3, 4]
        assert poller.points(POD)[0] == {"step": 1, "rolloutReward": 0.01}


async def test_the_history_of_a_finished_pod_is_kept_until_its_release() -> None:
    pods = [POD]
    async with serving() as trainer, polling(trainer.port, pods) as (poller, _):
        trainer.points = curve(1)
        await until("it is there", lambda: poller.has_points(POD))
        pods[:] = [replace(POD, phase="Succeeded"), pod_at("p-9")]
        await until_asked(trainer, 3)
        assert poller.has_points(POD)
        pods[:] = [replace(POD, phase="Succeeded", finalizers=())]
        await until("it is forgotten", lambda: not poller.has_points(POD))
        assert poller.points(POD) == ()


async def test_a_restarted_trainer_continues_its_history() -> None:
    async with serving() as trainer, polling(trainer.port, [POD]) as (poller, _):
        trainer.points, trainer.answer = curve(*range(1, 21)), {**UP, "step": 20}
        await until("20 steps are there", lambda: len(poller.points(POD)) == 20)
        trainer.points, trainer.answer = curve(11), {**UP, "step": 11}
        await until("it begins again at 11", lambda: len(poller.points(POD)) == 11)
        assert [point["step"] for point in poller.points(POD)] == list(range(1, 12))


async def test_an_unreadable_history_costs_no_metrics() -> None:
    async with serving() as trainer, polling(trainer.port, [POD]) as (poller, _):
        trainer.points = {"not": "a list"}
        await until_asked(trainer, 3)
        status = poller.status_of(POD)
        assert status is not None
        assert poller.points(POD) == ()


ACTIVE_RUNS = 1000
MOST_BYTES = 10 * 10**6


def test_a_thousand_full_histories_take_less_than_10_mb() -> None:
    """Noise, which does not compress: six metrics of four digits in each of 500 points."""
    noise = random.Random(7)
    points = [{"step": step, **{name: noise.random() for name in HISTORY_METRICS}} for step in range(1, MAX_POINTS + 1)]
    series = PolledHistory()
    series.take(ObservedTrainer(step=MAX_POINTS, total_steps=MAX_POINTS), read_points({"points": points}))
    assert len(series.points) == MAX_POINTS
    assert len(series._packed) * ACTIVE_RUNS < MOST_BYTES


def test_a_run_of_unknown_length_is_read_again_at_each_step() -> None:
    series = PolledHistory()
    assert not series.due(ObservedTrainer(step=0))
    assert series.due(ObservedTrainer(step=1))
    series.take(ObservedTrainer(step=1), read_points({"points": [{"step": 1}]}))
    assert not series.due(ObservedTrainer(step=1))
    assert series.due(ObservedTrainer(step=2))
