"""A run's life through reconcile, over the local back end's objects; the test plays the kubelet.

The last test ends the operator before and after each of its writes in turn: the end must always be the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import failed_result, ready, result, terminated

from rl_operator.api.names import API_VERSION, POD_FINALIZER, RUN_KIND
from rl_operator.api.run import RunStatus, TrainingRun
from rl_operator.errors import ConflictError, OperatorError
from rl_operator.local.layout import Layout
from rl_operator.local.store import Manifest, Store
from rl_operator.local.world import LocalWorld, pods_of
from rl_operator.reconcile import Pace, reconcile
from rl_operator.status.observation import PodObservation, format_time

KEY = ("default", "sorting")
PACE = Pace(backoff_seconds=10, progress_seconds=60)


class KilledError(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


class MortalWorld(LocalWorld):
    """Counts writes, and dies before or after the `dies_at`-th of them."""

    writes = 0
    dies_at: int | None = None
    dies_before = True

    def _write(self, *, before: bool) -> None:
        if before:
            self.writes += 1
        if self.writes == self.dies_at and self.dies_before is before:
            raise KilledError

    async def create_child(self, manifest: Mapping[str, Any]) -> None:
        self._write(before=True)
        await super().create_child(manifest)
        self._write(before=False)

    async def delete_pod(self, pod: PodObservation) -> None:
        self._write(before=True)
        await super().delete_pod(pod)
        self._write(before=False)

    async def release_pod(self, pod: PodObservation) -> None:
        self._write(before=True)
        await super().release_pod(pod)
        self._write(before=False)

    async def write_status(self, run: TrainingRun, status: RunStatus) -> TrainingRun:
        self._write(before=True)
        written = await super().write_status(run, status)
        self._write(before=False)
        return written


@dataclass
class Life:
    """One run, its operator and its kubelet."""

    store: Store
    world: MortalWorld
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def status(self) -> RunStatus:
        run = self.world.run(KEY)
        assert run is not None
        return run.status

    def apply(self, **spec: Any) -> None:
        self.store.create(
            {
                "apiVersion": API_VERSION,
                "kind": RUN_KIND,
                "metadata": {"name": KEY[1], "namespace": KEY[0]},
                "spec": {"environment": "sort_digits", "runtime": "tiny", **spec},
            }
        )

    def edit(self, **spec: Any) -> None:
        self.store.update(RUN_KIND, *KEY, lambda run: run["spec"].update(spec))

    async def reconcile(self) -> float | None:
        """One reconcile by an operator that is started again when it dies."""
        for _ in range(20):
            try:
                return await reconcile(KEY, self.world, lambda: self.now, PACE)
            except KilledError:
                self.world.dies_at = None
            except ConflictError:
                continue
        pytest.fail("the reconcile does not come to an end")

    async def settle(self) -> None:
        """Reconcile until nothing is written any more."""
        for _ in range(10):
            before = self.world.writes
            await self.reconcile()
            if self.world.writes == before:
                return
        pytest.fail("the reconcile does not come to rest")

    @property
    def pods(self) -> tuple[Manifest, ...]:
        return pods_of(self.store, KEY)

    def play(self, phase: str, api: Any, trainer: Any, environment: Any) -> None:
        """Write the newest pod's status as a kubelet would."""
        status = {
            "phase": phase,
            "initContainerStatuses": [{"name": "api", **api}],
            "containerStatuses": [{"name": "trainer", **trainer}, {"name": "environment", **environment}],
        }
        name = self.pods[-1]["metadata"]["name"]
        self.store.update(
            "Pod", KEY[0], name, lambda pod: pod.update(status=status, spec={**pod["spec"], "nodeName": "here"})
        )

    def play_failure(self) -> None:
        trainer = terminated(1, failed_result("internal", "bug"), at=format_time(self.now))
        self.play("Failed", ready(), trainer, terminated(0))


@pytest.fixture
def life(tmp_path: Path) -> Life:
    store = Store(Layout(tmp_path))
    return Life(store, MortalWorld(store, lambda _uid: None))


async def test_success(life: Life) -> None:
    life.apply()
    await life.settle()
    assert (life.status.phase, life.status.attempt, len(life.pods)) == ("Starting", 1, 1)
    assert life.pods[0]["metadata"]["name"] == life.status.pod_name

    life.play("Running", ready(), ready(), ready())
    await life.settle()
    assert life.status.phase == "Running"

    life.play("Succeeded", terminated(0), terminated(0, result()), terminated(0))
    await life.settle()
    assert life.status.phase == "Succeeded"
    assert life.status.weights is not None
    assert POD_FINALIZER not in life.pods[0]["metadata"]["finalizers"]
    assert life.world.writes <= 8


async def test_a_draft_starts_nothing_until_it_is_released(life: Life) -> None:
    life.apply(suspend=True)
    await life.settle()
    assert (life.status.phase, life.status.start_time, life.pods) == ("Stopped", None, ())
    life.edit(suspend=False)
    await life.settle()
    assert (life.status.phase, len(life.pods)) == ("Starting", 1)


async def test_a_refused_run_starts_once_it_is_mended(life: Life) -> None:
    life.apply(config={"group_sise": 8})
    await life.settle()
    assert life.status.phase == "Pending"
    assert life.status.refusals[0].field == "spec.config.group_sise"
    assert life.pods == ()
    life.edit(config={"group_size": 8})
    await life.settle()
    assert (life.status.phase, life.status.refusals, len(life.pods)) == ("Starting", (), 1)


async def test_an_unknown_runtime_is_refused_naming_those_that_exist(life: Life) -> None:
    life.apply(runtime="tyni")
    await life.settle()
    refusal = life.status.refusals[0]
    assert (refusal.code, refusal.allowed) == ("RuntimeNotFound", ["default", "tiny"])


async def test_a_failed_attempt_is_followed_by_another_after_the_backoff(life: Life) -> None:
    life.apply()
    await life.settle()
    life.play_failure()
    await life.settle()
    assert (life.status.phase, life.status.attempt, len(life.pods)) == ("Pending", 1, 1)
    life.now += timedelta(seconds=11)
    await life.settle()
    assert (life.status.phase, life.status.attempt, len(life.pods)) == ("Starting", 2, 2)
    first, second = life.pods
    assert first["spec"]["volumes"] == second["spec"]["volumes"], "attempt 2 is what attempt 1 was"
    assert [a.reason for a in life.status.attempts] == ["TrainerFailed"]


async def test_stop_and_resume(life: Life) -> None:
    life.apply()
    await life.settle()
    life.play("Running", ready(), ready(), ready())
    await life.settle()
    life.edit(suspend=True)
    await life.settle()
    assert life.status.phase == "Stopping"
    assert "deletionTimestamp" in life.pods[0]["metadata"]
    stopped = result(outcome="stopped", stepsTrained=12, samplerPath=None)
    life.play("Failed", ready(), terminated(0, stopped), terminated(0))
    await life.settle()
    assert life.status.phase == "Stopped"
    assert life.status.checkpoint is not None
    assert life.status.checkpoint.step == 12
    life.edit(suspend=False)
    await life.settle()
    assert (life.status.phase, life.status.attempt) == ("Starting", 2)


async def test_a_strangers_object_of_the_same_name_is_no_takeover(life: Life) -> None:
    life.apply()
    run = life.world.run(KEY)
    assert run is not None
    name = f"sorting-{run.metadata.uid[:5]}-1"
    life.store.create({"kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {}})
    assert await life.reconcile() is not None
    condition = life.status.condition("Reconciling")
    assert condition is not None
    assert condition.reason == "NameTaken"
    life.store.delete("Pod", "default", name)
    await life.settle()
    assert [pod["metadata"]["name"] for pod in life.pods] == [name]


@pytest.mark.parametrize("gone", [{"runtime": "gone"}, {"environment": "gone"}], ids=["runtime", "environment"])
async def test_what_vanished_after_the_freeze_is_named(life: Life, gone: dict[str, str]) -> None:
    """The operator died between the freeze and the ConfigMap, and what it would render from is not there any more."""
    life.apply(**gone)
    frozen = {
        "startTime": "2026-05-01T12:00:00Z",
        "attempt": 1,
        "podName": "p",
        "configMapName": "c",
        "configHash": "h",
    }
    life.store.update(RUN_KIND, *KEY, lambda run: run.update(status=frozen))
    assert await life.reconcile() is not None
    condition = life.status.condition("Reconciling")
    assert condition is not None
    assert condition.reason == "CreationRefused"
    assert "'gone' is gone" in condition.message
    assert life.pods == ()


async def test_a_deleted_run_lets_go_of_its_pod(life: Life) -> None:
    life.apply()
    await life.settle()
    life.store.delete(RUN_KIND, *KEY)
    await life.settle()
    assert all(POD_FINALIZER not in pod["metadata"]["finalizers"] for pod in life.pods)


async def test_applied_again_at_once_gets_a_pod_of_its_own(life: Life) -> None:
    life.apply()
    await life.settle()
    life.store.delete(RUN_KIND, *KEY)
    life.apply()
    await life.settle()
    run = life.world.run(KEY)
    assert run is not None
    own = [p for p in life.pods if p["metadata"]["ownerReferences"][0]["uid"] == run.metadata.uid]
    assert len(own) == 1
    assert life.status.pod_name == own[0]["metadata"]["name"]


async def _live(life: Life) -> tuple[Any, ...]:
    """A whole life: fails once, succeeds in the second attempt. Returns what must not depend on kills."""
    life.apply()
    await life.settle()
    life.play_failure()
    await life.settle()
    life.now += timedelta(seconds=11)
    await life.settle()
    life.play("Running", ready(), ready(), ready())
    await life.settle()
    life.play("Succeeded", terminated(0), terminated(0, result()), terminated(0))
    await life.settle()
    held = [POD_FINALIZER in pod["metadata"]["finalizers"] for pod in life.pods]
    reasons = [attempt.reason for attempt in life.status.attempts]
    return life.status.phase, life.status.attempt, reasons, life.status.failed_attempts, len(life.pods), held


EXPECTED = ("Succeeded", 2, ["TrainerFailed", "Succeeded"], 1, 2, [False, False])


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(1, 12))
async def test_killed_at_any_write_the_end_is_the_same(life: Life, nth: int, before: bool) -> None:
    life.world.dies_at, life.world.dies_before = nth, before
    assert await _live(life) == EXPECTED
    assert life.world.dies_at is None or life.world.writes < nth, "the kill did not happen"


async def test_errors_of_the_back_end_are_the_queues_to_retry(life: Life) -> None:
    life.apply()

    class BrokenWorld(MortalWorld):
        async def write_status(self, run: TrainingRun, status: RunStatus) -> TrainingRun:
            raise OperatorError(f"no answer for {run.key} {status.phase}")

    with pytest.raises(OperatorError, match="no answer"):
        await reconcile(KEY, BrokenWorld(life.store, lambda _uid: None), lambda: life.now, PACE)
    assert life.pods == ()
