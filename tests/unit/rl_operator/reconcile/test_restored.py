"""Objects restored from a backup, and copies: which run trains again, and which does not."""

import json
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.life import KEY, PACE, KilledError, Life
from tests.unit.rl_operator.status.builders import ready

from rl_operator.api.names import POD_FINALIZER, RUN_KIND, STARTED_AS_ANNOTATION
from rl_operator.reconcile import reconcile


def backup(life: Life) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(json.dumps(life.store.get(RUN_KIND, *KEY)))
    return manifest


def restore(life: Life, saved: dict[str, Any], *, with_status: bool, name: str = KEY[1]) -> None:
    """Delete the run and what it owns, and create it from its copy."""
    life.store.delete(RUN_KIND, *KEY)
    for pod in life.pods:
        life.store.update("Pod", KEY[0], pod["metadata"]["name"], lambda pod: pod["metadata"].update(finalizers=[]))
    metadata = {**saved["metadata"], "name": name}
    status = {"status": saved["status"]} if with_status else {}
    life.store.create({**{k: v for k, v in saved.items() if k != "status"}, "metadata": metadata, **status})


def mark(life: Life) -> str | None:
    run = life.run
    return run.metadata.annotations.get(STARTED_AS_ANNOTATION)


async def test_the_mark_names_the_run_and_is_written_once_its_first_container_runs(life: Life) -> None:
    await life.train()
    run = life.run
    assert mark(life) == f"sorting.{run.metadata.uid}"


async def test_a_status_says_nothing_of_a_pod_before_the_mark_is_written(life: Life) -> None:
    """Killed after any of the writes: what a backup would hold at that moment."""
    await life.start()
    assert (mark(life), life.status.containers, len(life.pods)) == (None, (), 1)
    life.play("Running", ready(), ready(), ready())
    life.client.dies_at, life.client.dies_before = life.client.writes + 1, False
    with pytest.raises(KilledError):
        await reconcile(KEY, life.client, lambda: life.now, PACE)
    assert (mark(life) is not None, life.status.containers) == (True, ())
    life.client.dies_at = None
    await life.settle()
    assert life.status.phase == "Running"


async def test_a_run_that_ends_without_a_container_is_marked(life: Life) -> None:
    await life.start()
    await life.change(suspend=True)
    assert mark(life) is not None


async def test_a_draft_has_no_mark(life: Life) -> None:
    await life.start(suspend=True)
    assert STARTED_AS_ANNOTATION not in backup(life)["metadata"].get("annotations", {})


@pytest.mark.parametrize("with_status", [True, False])
async def test_an_unfinished_run_that_is_restored_starts_nothing(life: Life, with_status: bool) -> None:
    await life.train()
    restore(life, backup(life), with_status=with_status)
    await life.settle()
    assert (life.status.phase, life.status.conditions[-1].reason, life.pods) == ("Stopped", "Restored", ())


@pytest.mark.parametrize("with_status", [True, False])
async def test_it_starts_from_the_beginning_once_its_mark_is_removed(life: Life, with_status: bool) -> None:
    await life.train()
    restore(life, backup(life), with_status=with_status)
    await life.settle()
    life.store.update(RUN_KIND, *KEY, lambda run: run["metadata"]["annotations"].pop(STARTED_AS_ANNOTATION))
    await life.settle()
    run = life.run
    assert (life.status.phase, life.status.attempt, len(life.pods)) == ("Starting", 1, 1)
    [pod] = life.pods
    assert pod["metadata"]["ownerReferences"][0]["uid"] == run.metadata.uid
    assert pod["metadata"]["name"] == life.status.pod_name
    await life.report("Running", ready(), ready(), ready())
    assert mark(life) == f"sorting.{run.metadata.uid}"
    await life.succeed()
    assert life.status.phase == "Succeeded"


async def test_a_restored_run_is_checked_again_before_it_starts(life: Life) -> None:
    """What was allowed where the backup was made need not be allowed here."""
    await life.train()
    saved = backup(life)
    saved["spec"]["config"] = {"group_size": "many"}
    saved["metadata"]["annotations"] = {STARTED_AS_ANNOTATION: f"sorting.{saved['metadata']['uid']}"}
    restore(life, saved, with_status=True)
    await life.settle()
    assert life.status.conditions[-1].reason == "Restored"
    life.store.update(RUN_KIND, *KEY, lambda run: run["metadata"]["annotations"].pop(STARTED_AS_ANNOTATION))
    await life.settle()
    assert (life.status.phase, life.status.refusals[0].code, life.pods) == ("Pending", "WrongType", ())


async def test_pods_restored_from_a_backup_are_named_and_released(life: Life) -> None:
    """A backup's pods come first, without their owner. They have no owner, and work."""
    await life.train()
    saved, [pod] = backup(life), life.pods
    restore(life, saved, with_status=False)
    pod["metadata"] = {**pod["metadata"], "ownerReferences": []}
    life.store.create(pod)
    await life.settle()
    assert f"Pod {pod['metadata']['name']} came back with it" in (life.status.message or "")
    [back] = life.pods
    assert POD_FINALIZER not in back["metadata"]["finalizers"]
    assert "deletionTimestamp" not in back["metadata"], "whoever restored it decides about it"


async def test_a_finished_run_restored_with_its_status_stays_finished(life: Life) -> None:
    await life.train()
    await life.succeed()
    restore(life, backup(life), with_status=True)
    await life.settle()
    assert (life.status.phase, life.pods) == ("Succeeded", ())


async def test_a_finished_run_restored_without_its_status_does_not_run_again(life: Life) -> None:
    await life.train()
    await life.succeed()
    restore(life, backup(life), with_status=False)
    await life.settle()
    assert (life.status.phase, life.status.conditions[-1].reason, life.pods) == ("Stopped", "Restored", ())


async def test_a_copy_under_another_name_is_a_new_run(life: Life) -> None:
    await life.train()
    saved = backup(life)
    saved["metadata"]["annotations"] = {STARTED_AS_ANNOTATION: f"original.{saved['metadata']['uid']}"}
    restore(life, saved, with_status=False)
    await life.settle()
    assert (life.status.phase, len(life.pods)) == ("Starting", 1)


async def test_an_old_status_without_its_mark_is_reported_and_starts_nothing(life: Life) -> None:
    """The mark was removed before the operator saw the restored run."""
    await life.start()
    saved = backup(life)
    saved["metadata"]["annotations"] = {}
    restore(life, saved, with_status=True)
    await life.settle()
    assert life.waits_for.reason == "CreationRefused"
    assert "create it again without its status" in life.waits_for.message
    assert life.pods == ()
