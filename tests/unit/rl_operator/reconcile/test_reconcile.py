"""A run's life through reconcile, over the local target's objects; the test plays the kubelet.

The last test ends the operator before and after each of its writes in turn: the end must always be the same.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.life import BEFORE_OR_AFTER, KEY, PACE, Life, MortalClient, make_life
from tests.unit.rl_operator.status.builders import ready, result, terminated, waiting

from rl_operator.api.names import POD_FINALIZER, RUN_KIND, RUN_LABEL
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import parse_stored_run
from rl_operator.local.state.state_store import Manifest
from rl_operator.operator_errors import OperatorError
from rl_operator.reconcile import reconcile
from rl_operator.reconcile.run_client import Key


def config_map(life: Life) -> Manifest | None:
    assert life.status.config_map_name
    return life.store.get("ConfigMap", KEY[0], life.status.config_map_name)


def remove_config_map(life: Life) -> None:
    assert life.status.config_map_name
    life.store.delete("ConfigMap", KEY[0], life.status.config_map_name)


def change_pod(life: Life, **metadata: object) -> None:
    name = life.status.pod_name
    assert name
    life.store.update("Pod", KEY[0], name, lambda pod: pod["metadata"].update(metadata))


async def test_a_config_map_is_restored_unchanged(life: Life) -> None:
    await life.train()
    before = config_map(life)
    remove_config_map(life)
    await life.settle()
    after = config_map(life)
    assert after["data"] == before["data"]
    assert life.status.phase == "Running"


async def test_a_config_map_that_would_differ_is_not_restored(life: Life) -> None:
    """The pod continues; when it fails there is no other."""
    life.apply_own()
    await life.settle()
    await life.report("Running", ready(), ready())
    remove_config_map(life)
    life.write_source("class Other: ...")
    await life.settle()
    assert config_map(life) is None
    assert len(life.pods) == 1
    await life.fail(inside=False)
    assert (life.status.phase, len(life.pods)) == ("Failed", 1)
    assert life.status.failure.reason == "ConfigLost"
    assert "was deleted" in (life.status.failure.message or "")


class StoredRuns(MortalClient):
    """Reads runs as the API server returns them."""

    def run(self, key: Key) -> TrainingRun | None:
        run = super().run(key)
        return parse_stored_run(run.to_wire()) if run else None


async def test_a_config_map_of_a_run_that_cannot_be_read_is_not_restored(tmp_path: Path) -> None:
    """As an earlier release, with larger limits, may have started it. Its settings are no longer known."""
    life = make_life(tmp_path, StoredRuns)
    await life.train()
    remove_config_map(life)
    await life.change(config={f"field_{n}": 1 for n in range(300)})
    assert config_map(life) is None
    message = life.status.message or ""
    assert "was deleted, and cannot be rendered again: the spec is too large to be read: spec.config: it has" in message


async def test_labels_are_put_back(life: Life) -> None:
    await life.train()
    before = life.pods[0]["metadata"]["labels"]
    change_pod(life, labels={"mine": "x"})
    await life.settle()
    [pod] = life.pods
    after = pod["metadata"]["labels"]
    assert {name: after.get(name) for name in before} == before
    assert after["mine"] == "x"
    assert (life.status.phase, life.status.attempt) == ("Running", 1)


async def test_a_pod_that_no_longer_belongs_to_the_run_blocks_its_name(life: Life) -> None:
    await life.train()
    pod = life.pods[0]
    change_pod(life, ownerReferences=[], labels={})
    for _ in range(3):  # it never comes to rest: the name is tried again and again
        await life.reconcile()
    reconciling = life.waits_for
    assert (reconciling.reason, pod["metadata"]["name"] in (life.status.message or "")) == ("NameTaken", True)
    assert life.status.attempts == ()


async def test_a_reset_status_starts_nothing(life: Life) -> None:
    await life.train()
    await life.fail()
    await life.later(11)
    assert (life.status.attempt, len(life.pods)) == (2, 2)
    second = life.status.pod_name
    life.store.delete("Pod", KEY[0], life.pods[0]["metadata"]["name"])
    life.store.update("RLTrainingRun", *KEY, lambda run: run["status"].update(attempt=1, podName="x", attempts=[]))
    await life.settle()
    assert (life.status.attempt, life.status.pod_name) == (2, second)


async def test_an_unrelated_config_map_is_not_read(life: Life) -> None:
    await life.train()
    remove_config_map(life)
    name = life.status.config_map_name
    metadata = {"name": name, "namespace": KEY[0], "labels": {RUN_LABEL: KEY[1]}}
    life.store.create({"kind": "ConfigMap", "metadata": metadata, "data": {"pod.json": "{}"}})
    await life.fail()
    life.now += timedelta(seconds=11)
    for _ in range(3):
        await life.reconcile()
    reconciling = life.waits_for
    assert (reconciling.reason, len(life.pods)) == ("NameTaken", 1)


async def test_a_refused_run_starts_once_it_is_fixed(life: Life) -> None:
    await life.start(config={"group_sise": 8})
    assert life.status.phase == "Pending"
    assert life.status.refusals[0].field == "spec.config.group_sise"
    assert life.pods == ()
    await life.change(config={"group_size": 8})
    assert (life.status.phase, life.status.refusals, len(life.pods)) == ("Starting", (), 1)


async def test_an_unknown_runtime_is_refused_naming_the_existing_ones(life: Life) -> None:
    await life.start(runtime="tyni")
    refusal = life.status.refusals[0]
    assert (refusal.code, refusal.allowed) == ("RuntimeNotFound", ["default", "tiny"])


async def test_stop_and_resume(life: Life) -> None:
    await life.train()
    await life.change(suspend=True)
    assert life.status.phase == "Stopping"
    assert "deletionTimestamp" in life.pods[0]["metadata"]
    stopped = result(outcome="stopped", stepsTrained=12, samplerPath=None)
    await life.report("Failed", ready(), terminated(0, stopped), terminated(0))
    assert life.status.phase == "Stopped"
    assert life.status.checkpoint.step == 12
    await life.change(suspend=False)
    assert (life.status.phase, life.status.attempt) == ("Starting", 2)


async def test_an_unrelated_object_of_the_same_name_is_not_taken_over(life: Life) -> None:
    life.apply()
    run = life.run
    name = f"sorting-{run.metadata.uid[:5]}-1"
    life.store.create({"kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {}})
    assert await life.reconcile() is not None
    assert life.waits_for.reason == "NameTaken"
    life.store.delete("Pod", "default", name)
    await life.settle()
    assert [pod["metadata"]["name"] for pod in life.pods] == [name]


@pytest.mark.parametrize("gone", [{"runtime": "gone"}, {"environment": "gone"}], ids=["runtime", "environment"])
async def test_inputs_that_vanished_after_the_freeze_are_named(life: Life, gone: dict[str, str]) -> None:
    """The operator died between the freeze and the ConfigMap, and the inputs of the rendering are gone."""
    life.apply(**gone)
    run = life.run
    frozen = {
        "startTime": "2026-05-01T12:00:00Z",
        "attempt": 1,
        "podName": f"sorting-{run.metadata.uid[:5]}-1",
        "configMapName": "c",
        "configHash": "h",
    }
    life.store.update(RUN_KIND, *KEY, lambda run: run.update(status=frozen))
    assert await life.reconcile() is not None
    assert life.waits_for.reason == "CreationRefused"
    assert "'gone' is gone" in life.waits_for.message
    assert life.pods == ()


async def test_a_deleted_run_releases_its_pod(life: Life) -> None:
    await life.start()
    life.store.delete(RUN_KIND, *KEY)
    await life.settle()
    assert all(POD_FINALIZER not in pod["metadata"]["finalizers"] for pod in life.pods)


async def test_a_run_applied_again_at_once_gets_its_own_pod(life: Life) -> None:
    await life.start()
    life.store.delete(RUN_KIND, *KEY)
    await life.start()
    run = life.run
    own = [p for p in life.pods if p["metadata"]["ownerReferences"][0]["uid"] == run.metadata.uid]
    assert len(own) == 1
    assert life.status.pod_name == own[0]["metadata"]["name"]


async def _live(life: Life) -> tuple[Any, ...]:
    """A whole run: fails once, succeeds in the second attempt. Returns what must not depend on kills."""
    await life.start()
    await life.fail()
    await life.later(11)
    await life.report("Running", ready(), ready(), ready())
    await life.succeed()
    held = [POD_FINALIZER in pod["metadata"]["finalizers"] for pod in life.pods]
    reasons = life.ends
    return life.status.phase, life.status.attempt, reasons, life.status.failed_attempts, len(life.pods), held


EXPECTED = ("Succeeded", 2, ["TrainerFailed", "Succeeded"], 1, 2, [False, False])


@BEFORE_OR_AFTER
@pytest.mark.parametrize("nth", range(1, 12))
async def test_killed_at_any_write_the_end_is_the_same(life: Life, nth: int, before: bool) -> None:
    life.client.dies_at, life.client.dies_before = nth, before
    assert await _live(life) == EXPECTED
    assert "Succeeded" in life.client.told, "who wrote the end may die before telling it"
    assert life.client.dies_at is None or life.client.writes < nth, "the kill did not happen"


async def test_trouble_is_a_warning_each_time_and_success_after_it_is_none(life: Life) -> None:
    life.apply()
    for _ in range(2):  # in the same way
        await life.settle()
        await life.fail()
        await life.later(60)
    await life.report("Pending", ready(), waiting("ErrImagePull", "not found"), waiting("PodInitializing"))
    await life.succeed()
    assert life.client.warned == ("BackOff", "BackOff", "ImageNotPulled")
    assert life.client.told[-1] == "Succeeded"


async def test_errors_of_the_target_are_left_to_the_queue(tmp_path: Path) -> None:
    class BrokenWorld(MortalClient):
        async def write_status(self, run: TrainingRun, status: RunStatus) -> TrainingRun:
            raise OperatorError(f"no answer for {run.key} {status.phase}")

    life = make_life(tmp_path, BrokenWorld)
    life.apply()
    with pytest.raises(OperatorError, match="no answer"):
        await reconcile(KEY, life.client, lambda: life.now, PACE)
    assert life.pods == ()


@pytest.mark.parametrize("interrupted", [False, True], ids=["at the first start", "after an interrupted start"])
async def test_a_run_that_is_suspended_while_its_config_is_made_gets_no_pod(tmp_path: Path, interrupted: bool) -> None:
    class Suspending(MortalClient):
        async def create_child(self, manifest: Mapping[str, Any]) -> None:
            await super().create_child(manifest)
            if manifest["kind"] == "ConfigMap":
                life.edit(suspend=True)

    life = make_life(tmp_path, Suspending)
    life.apply()
    if interrupted:
        life.client.dies_at, life.client.dies_before = 1, False
    await life.settle()
    assert (life.status.attempt, life.pods) == (1, ())
    await life.change(suspend=False)
    assert len(life.pods) == 1
