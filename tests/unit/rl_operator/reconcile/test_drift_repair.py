"""What others removed from a run: found, restored, or reported; nothing is started next to a running pod."""

from datetime import timedelta
from pathlib import Path

from tests.unit.rl_operator.reconcile.life import KEY, PACE, Life, MortalClient, make_life
from tests.unit.rl_operator.status.builders import ready

from rl_operator.api.names import RUN_LABEL
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import parse_stored_run
from rl_operator.local.state.state_store import Manifest
from rl_operator.reconcile.run_client import Key

BACKOFF = timedelta(seconds=PACE.backoff_seconds + 1)


async def train(life: Life) -> Manifest:
    """The pod of a training run."""
    life.apply()
    await life.settle()
    life.play("Running", ready(), ready(), ready())
    await life.settle()
    assert life.status.phase == "Running"
    return life.pods[0]


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
    await train(life)
    before = config_map(life)
    remove_config_map(life)
    await life.settle()
    after = config_map(life)
    assert before
    assert after
    assert after["data"] == before["data"]
    assert life.status.phase == "Running"


async def test_a_config_map_that_would_differ_is_not_restored(life: Life) -> None:
    """The pod continues; when it fails there is no other."""
    life.apply_own()
    await life.settle()
    life.play("Running", ready(), ready())
    await life.settle()
    remove_config_map(life)
    life.write_source("class Other: ...")
    await life.settle()
    assert config_map(life) is None
    assert len(life.pods) == 1
    life.play_failure(inside=False)
    await life.settle()
    assert (life.status.phase, len(life.pods)) == ("Failed", 1)
    assert life.status.failure
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
    await train(life)
    remove_config_map(life)
    life.edit(config={f"field_{n}": 1 for n in range(300)})
    await life.settle()
    assert config_map(life) is None
    message = life.status.message or ""
    assert "was deleted, and cannot be rendered again: the spec is too large to be read: spec.config: it has" in message


async def test_labels_are_put_back(life: Life) -> None:
    before = (await train(life))["metadata"]["labels"]
    change_pod(life, labels={"mine": "x"})
    await life.settle()
    [pod] = life.pods
    after = pod["metadata"]["labels"]
    assert {name: after.get(name) for name in before} == before
    assert after["mine"] == "x"
    assert (life.status.phase, life.status.attempt) == ("Running", 1)


async def test_a_pod_that_no_longer_belongs_to_the_run_blocks_its_name(life: Life) -> None:
    pod = await train(life)
    change_pod(life, ownerReferences=[], labels={})
    for _ in range(3):  # it never comes to rest: the name is tried again and again
        await life.reconcile()
    reconciling = life.status.condition("Reconciling")
    assert reconciling
    assert (reconciling.reason, pod["metadata"]["name"] in (life.status.message or "")) == ("NameTaken", True)
    assert life.status.attempts == ()


async def test_a_reset_status_starts_nothing(life: Life) -> None:
    await train(life)
    life.play_failure()
    await life.settle()
    life.now += BACKOFF
    await life.settle()
    assert (life.status.attempt, len(life.pods)) == (2, 2)
    second = life.status.pod_name
    life.store.delete("Pod", KEY[0], life.pods[0]["metadata"]["name"])
    life.store.update("RLTrainingRun", *KEY, lambda run: run["status"].update(attempt=1, podName="x", attempts=[]))
    await life.settle()
    assert (life.status.attempt, life.status.pod_name) == (2, second)


async def test_an_unrelated_config_map_is_not_read(life: Life) -> None:
    await train(life)
    remove_config_map(life)
    name = life.status.config_map_name
    metadata = {"name": name, "namespace": KEY[0], "labels": {RUN_LABEL: KEY[1]}}
    life.store.create({"kind": "ConfigMap", "metadata": metadata, "data": {"pod.json": "{}"}})
    life.play_failure()
    await life.settle()
    life.now += BACKOFF
    for _ in range(3):
        await life.reconcile()
    reconciling = life.status.condition("Reconciling")
    assert reconciling
    assert (reconciling.reason, len(life.pods)) == ("NameTaken", 1)
