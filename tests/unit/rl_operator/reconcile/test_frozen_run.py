"""A ConfigMap that is not what the run was started with: at every moment nothing is made from it, and it is told."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.life import KEY, Life, make_life
from tests.unit.rl_operator.reconcile.test_sandbox_pods import ClusterLikeClient
from tests.unit.rl_operator.samples import inputs_of
from tests.unit.rl_operator.status.builders import ready, running, terminated

from rl_operator.documents.shipped import bundled_runtimes
from rl_operator.render.manifests import render_run

EVIL = '{"kind": "Pod", "spec": {"serviceAccountName": "ci-admin", "hostPID": true, "volumes": [], "containers": []}}'

FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another pod": (lambda held: held["data"].update({"pod.json": EVIL}), "pod.json differs"),
    "other environments": (lambda held: held["data"].update({"environments.json": "{}"}), "environments.json differs"),
    "another config": (lambda held: held["data"].update({"config.yaml": "env: {}"}), "config.yaml differs"),
    "sandboxes added": (lambda held: held["data"].update({"sandboxes.json": EVIL}), "'sandboxes.json' is added"),
    "a key added": (lambda held: held["data"].update({"more": ""}), "'more' is added"),
    "a key missing": (lambda held: held["data"].pop("environments.json"), "environments.json is missing"),
    "no content": (lambda held: held.pop("data"), "config.yaml is missing"),
    "binary content added": (lambda held: held.update(binaryData={"b": "AA=="}), "'b' is added as binary data"),
    "it can be changed": (lambda held: held.pop("immutable"), "it is not immutable"),
}
each_forgery = pytest.mark.parametrize(("change", "said"), FORGERIES.values(), ids=FORGERIES)


def config_map_name(life: Life) -> str:
    assert life.status.config_map_name
    return life.status.config_map_name


def forge(life: Life, change: Callable[[dict[str, Any]], object], name: str = "") -> None:
    """By someone who may write ConfigMaps: its name and owner stay."""
    life.store.update("ConfigMap", KEY[0], name or config_map_name(life), change)


def repair(life: Life, name: str = "") -> None:
    """What the message says."""
    life.store.delete("ConfigMap", KEY[0], name or config_map_name(life))


async def look(life: Life, seconds: float = 11) -> None:
    """It is looked at every few seconds: it does not come to rest."""
    life.now += timedelta(seconds=seconds)
    for _ in range(3):
        await life.reconcile()


def told(life: Life) -> str:
    """Why nothing is created."""
    assert life.waits_for.reason == "TemplateChanged"
    return life.waits_for.message


@each_forgery
async def test_made_before_the_start(life: Life, change: Callable[[dict[str, Any]], object], said: str) -> None:
    await life.start(suspend=True)
    early = render_run(life.run, inputs_of(life.run, bundled_runtimes()["tiny"])).config_map
    change(early)
    life.store.create(early)
    life.edit(suspend=False)
    await look(life)
    assert life.pods == ()
    assert f"ConfigMap default/{config_map_name(life)} is not what the run was started with" in told(life)
    assert said in told(life)
    assert "it is written again as it was" in told(life)
    repair(life)
    await life.settle()
    [pod] = life.pods
    assert "serviceAccountName" not in pod["spec"]


async def test_made_before_the_start_as_it_would_be(life: Life) -> None:
    await life.start(suspend=True)
    life.store.create(render_run(life.run, inputs_of(life.run, bundled_runtimes()["tiny"])).config_map)
    await life.change(suspend=False)
    assert len(life.pods) == 1


@each_forgery
async def test_changed_between_attempts(life: Life, change: Callable[[dict[str, Any]], object], said: str) -> None:
    await life.train()
    await life.fail()
    forge(life, change)
    await look(life)
    assert len(life.pods) == 1
    assert (life.status.attempt, len(life.ends)) == (2, 1), "an attempt that merely waits is not charged"
    assert said in told(life)
    assert "TemplateChanged" in life.client.warned
    repair(life)
    await life.settle()
    first, second = life.pods
    assert [each["image"] for each in first["spec"]["containers"]] == [e["image"] for e in second["spec"]["containers"]]


async def test_exchanged_with_another_runs(life: Life) -> None:
    await life.train()
    await life.fail()
    other = life.run.with_changes(metadata=life.run.metadata.with_changes(uid="another"))
    texts = render_run(other, inputs_of(other, bundled_runtimes()["tiny"])).config_map["data"]
    forge(life, lambda held: held.update(data=texts))
    await look(life)
    assert len(life.pods) == 1
    assert "pod.json differs" in told(life)


@each_forgery
async def test_changed_while_it_trains(life: Life, change: Callable[[dict[str, Any]], object], said: str) -> None:
    await life.train()
    forge(life, change)
    await life.reconcile()
    [pod] = life.pods
    assert "deletionTimestamp" not in pod["metadata"]
    condition = life.status.condition("Ready")
    assert condition is not None
    assert (life.status.phase, condition.reason, said in condition.message) == ("Running", "TemplateChanged", True)
    assert "Training continues." in condition.message
    assert "TemplateChanged" in life.client.warned
    repair(life)
    await life.settle()
    assert said not in (life.status.message or "")
    await life.fail()
    await life.later(11)
    assert len(life.pods) == 2


async def work_apart(life: Life) -> None:
    """A run whose own environment works."""
    life.apply_own()
    await life.settle()
    await life.report("Running", ready(), ready())
    life.play_environment("1-env-0-0", ready())
    await life.settle()
    assert life.status.phase == "Running"


@each_forgery
async def test_changed_before_a_replica(life: Life, change: Callable[[dict[str, Any]], object], said: str) -> None:
    await work_apart(life)
    forge(life, change)
    life.fail_environment("1-env-0-0")
    await look(life)
    assert list(life.environments) == ["1-env-0-0"]
    assert said in (life.status.message or "")
    repair(life)
    await life.settle()
    assert "1-env-0-1" in life.environments


async def test_frozen_files_are_changed_before_a_replica(life: Life) -> None:
    await work_apart(life)
    [source] = [name for kind, name in life.client.children(KEY) if kind == "ConfigMap" and "-source-" in name]
    forge(life, lambda held: held["data"].update({"digits.py": "import os"}), source)
    life.fail_environment("1-env-0-0")
    await look(life)
    assert list(life.environments) == ["1-env-0-0"]
    assert f"ConfigMap default/{source} is not what the run was started with" in (life.status.message or "")
    repair(life, source)
    await life.settle()
    assert "1-env-0-1" in life.environments


async def test_frozen_files_that_were_there_before(life: Life) -> None:
    life.apply_own(suspend=True)
    await life.settle()
    early = await _source(life)
    life.store.create({**early, "data": {"digits.py": "import os"}})
    life.edit(suspend=False)
    await look(life)
    assert life.pods == ()
    assert f"ConfigMap default/{early['metadata']['name']}" in told(life)
    repair(life, early["metadata"]["name"])
    await life.settle()
    assert len(life.pods) == 1


async def _source(life: Life) -> dict[str, Any]:
    """The ConfigMap with the files that the run would freeze."""
    copy = make_life(life.store.layout.root.parent / "copy")
    copy.apply_own()
    copy.store.update("RLTrainingRun", *KEY, lambda run: run["metadata"].update(uid=life.run.metadata.uid))
    await copy.settle()
    found = copy.store.list_all("ConfigMap", KEY[0], prefix="sorting-source-")
    return next(iter(found))


async def test_changed_before_a_sandbox(tmp_path: Path) -> None:
    life = make_life(tmp_path, ClusterLikeClient)
    life.apply(sandbox={"size": 1})
    await life.settle()
    await life.report("Running", ready(), ready(), running())
    life.play_sandbox("1-sandbox-0-0", ready())
    await life.report("Running", ready(), ready(), ready())
    forge(life, FORGERIES["another pod"][0])
    life.play_sandbox("1-sandbox-0-0", terminated(0), "Succeeded")
    await look(life)
    assert list(life.sandboxes) == ["1-sandbox-0-0"]
    assert "is not what the run was started with" in (life.status.message or "")


async def test_it_cannot_be_written_again(tmp_path: Path) -> None:
    """The runtime was edited since: the repair that is told is another one."""
    life = make_life(tmp_path, ClusterLikeClient)
    await life.train()
    await life.fail()
    assert isinstance(life.client, ClusterLikeClient)
    tiny = bundled_runtimes()["tiny"]
    life.client.edited = tiny.with_changes(spec=tiny.spec.with_changes(image="tinker-atropos:other"))
    forge(life, FORGERIES["another pod"][0])
    await look(life)
    assert "with spec.startFrom" in told(life)
    repair(life)
    await look(life)
    assert (len(life.pods), life.waits_for.reason) == (1, "CreationRefused")
    assert "are not what they were" in life.waits_for.message
