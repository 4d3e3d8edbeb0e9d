"""The life of a run whose environments run in pods of their own; the test plays the kubelet."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.life import BEFORE_OR_AFTER, KEY, PACE, Life
from tests.unit.rl_operator.status.builders import ready, result, running, terminated

from rl_operator.api.names import POD_FINALIZER, RUN_KIND
from rl_operator.api.status_fields import EnvironmentPods
from rl_operator.operator_errors import GoneError
from rl_operator.reconcile import reconcile
from rl_operator.status.observed.observation import ObservedTrainer, format_time


async def start(life: Life, *names: str) -> None:
    """Up to a working run pod, and environment pods of these names before their first group."""
    await life.settle()
    await life.report("Running", ready(), ready(), None if life.own else running())
    assert sorted(life.environments) == sorted(names)
    for name in names:
        life.play_environment(name, running())
    await life.settle()


async def work(life: Life, *names: str) -> None:
    await start(life, *names)
    for name in names:
        life.play_environment(name, ready())
    await life.report("Running", ready(), ready(), None if life.own else ready())
    assert life.status.phase == "Running"


async def succeed(life: Life) -> None:
    for name in life.environments:
        life.play_environment(name, terminated(0), "Succeeded")
    await life.report("Succeeded", terminated(0), terminated(0, result()), None if life.own else terminated(0))


def stop(life: Life, steps: int) -> None:
    """The trainer saved and ended on request."""
    saved = result(outcome="stopped", stepsTrained=steps)
    life.play("Failed", terminated(0), terminated(0, saved, at=format_time(life.now)))


async def test_an_own_environment_from_apply_to_weights(life: Life) -> None:
    life.apply_own()
    await life.settle()
    assert (life.status.phase, len(life.pods), life.environments) == ("Starting", 1, {})
    assert life.names("Service") == ["sorting-U"]
    assert life.names("NetworkPolicy") == ["sorting-U-environment", "sorting-U-ops", "sorting-U-trainer"]
    assert [c["name"] for c in life.pods[0]["spec"]["containers"]] == ["trainer"]

    await life.report("Running", ready(), running())
    assert list(life.environments) == ["1-env-0-0"], "as soon as the run's pod has an address"
    await life.report("Running", ready(), ready())
    assert life.status.phase == "Starting", "a run without a working environment does not run"

    life.play_environment("1-env-0-0", ready())
    await life.settle()
    assert life.status.phase == "Running"
    assert life.status.environments == EnvironmentPods(desired=1, ready=1, failures=0)

    await succeed(life)
    assert life.status.phase == "Succeeded"
    assert "deletionTimestamp" not in life.environments["1-env-0-0"]["metadata"], "what ended keeps its log"
    assert life.client.writes == 15


async def test_unread_environments_do_not_start(life: Life) -> None:
    """The files changed between the environment's check and the start."""
    life.apply_own()
    read = life.client.read_files

    async def other_files(environment: Any) -> Any:
        await read(environment)
        return {"digits.py": "import os"}

    life.client.read_files = other_files
    assert await life.reconcile() is not None, "it is looked at again by itself"
    assert life.status.start_time is None
    assert life.waits_for.reason == "EnvironmentPending"
    life.client.read_files = read
    await life.settle()
    assert life.status.phase == "Starting"


async def test_frozen_files_are_used_in_attempt_2_too(life: Life) -> None:
    life.apply_own("class Digits: first = 1")
    await work(life, "1-env-0-0")
    life.write_source("class Digits: second = 2")
    await life.fail(inside=False)
    await life.later(11)
    await life.report("Running", ready(), ready())
    life.kubelet()
    assert list(life.environments) == ["2-env-0-0"], "those of attempt 1 are gone"
    volumes = {v["name"]: v for v in life.environments["2-env-0-0"]["spec"]["volumes"]}
    source = life.store.get("ConfigMap", KEY[0], volumes["source"]["configMap"]["name"])
    assert source["data"] == {"digits.py": "class Digits: first = 1"}


async def fail_four_times(life: Life) -> None:
    for n in range(4):
        life.fail_environment(f"1-env-0-{n}", message=f"error: failure {n}")
        await life.settle()
        await life.later(100)


async def test_one_that_vanishes_with_its_run_is_not_replaced(life: Life) -> None:
    life.apply_own()
    await work(life, "1-env-0-0")
    life.store.delete("Pod", KEY[0], life.environments["1-env-0-0"]["metadata"]["name"])
    life.client.run_is_gone = True
    with pytest.raises(GoneError):
        await life.reconcile()
    assert list(life.environments) == ["1-env-0-0"]


async def test_replicas_change_while_it_runs(life: Life) -> None:
    life.apply(environmentReplicas=2)
    await work(life, "1-env-1-0")
    await life.change(environmentReplicas=3)
    assert list(life.environments) == ["1-env-1-0", "1-env-2-0"]
    life.play_environment("1-env-2-0", ready())
    await life.change(environmentReplicas=1)
    life.kubelet()
    assert life.environments == {}
    assert life.status.phase == "Running", "the one beside the trainer works on"
    await life.change(environmentReplicas=2)
    assert list(life.environments) == ["1-env-1-0"]
    assert life.names("Service") == ["sorting-U"]


async def test_a_run_started_with_one_replica_gets_more_in_the_next_attempt(life: Life) -> None:
    life.apply()
    await work(life)
    life.attempt_metrics[life.pods[0]["metadata"]["name"]] = ObservedTrainer(step=3, total_steps=40)
    life.edit(environmentReplicas=3)
    await life.reconcile()
    await life.later(61)
    assert life.environments == {}
    assert "spec.environmentReplicas is 3: more than one needs the next attempt" in str(life.status.message)
    await life.fail()
    await life.later(11)
    await life.report("Running", ready(), running(), running())
    assert list(life.environments) == ["2-env-1-0", "2-env-2-0"]
    api = {each["name"]: each.get("value") for each in life.pods[1]["spec"]["initContainers"][0]["env"]}
    assert api["RL_REMOTE_ENVIRONMENTS"] == "1"


async def test_deleted_objects_are_restored(life: Life) -> None:
    life.apply_own()
    await work(life, "1-env-0-0")
    for kind, name in sorted(life.client.children(KEY)):
        if kind != "ConfigMap":
            life.store.delete(kind, KEY[0], name)
    await life.settle()
    assert len(life.names("Service")) + len(life.names("NetworkPolicy")) == 4


def source_of_run(life: Life) -> str:
    [source] = [name for kind, name in life.client.children(KEY) if kind == "ConfigMap" and "-source-" in name]
    return source


async def test_deleted_frozen_files_are_restored(life: Life) -> None:
    life.apply_own()
    await start(life, "1-env-0-0")
    life.store.delete("ConfigMap", KEY[0], source := source_of_run(life))
    life.fail_environment("1-env-0-0")
    await life.later(11)
    assert source_of_run(life) == source
    assert "1-env-0-1" in life.environments


async def test_deleted_frozen_files_that_were_edited_are_named(life: Life) -> None:
    """They exist nowhere else: the pod would wait forever."""
    life.apply_own()
    await start(life, "1-env-0-0")
    source = source_of_run(life)
    life.write_source("class Digits: answer = 1")
    life.store.delete("ConfigMap", KEY[0], source)
    life.fail_environment("1-env-0-0")
    life.now += timedelta(seconds=11)
    assert await life.reconcile() is not None
    condition = life.waits_for
    assert (condition.reason, list(life.environments)) == ("CreationRefused", ["1-env-0-0"])
    assert f"ConfigMap default/{source} is gone" in condition.message


async def test_a_stop_ends_the_runs_pod_first(life: Life) -> None:
    life.apply_own()
    await work(life, "1-env-0-0")
    await life.change(suspend=True)
    assert life.status.phase == "Stopping"
    assert "deletionTimestamp" not in life.environments["1-env-0-0"]["metadata"]
    stop(life, steps=12)
    await life.settle()
    life.kubelet()
    assert (life.status.phase, life.environments) == ("Stopped", {})
    life.edit(suspend=False)
    await work(life, "2-env-0-0")


async def test_no_environment_outlives_its_run(life: Life) -> None:
    life.apply_own()
    await work(life, "1-env-0-0")
    life.store.delete(RUN_KIND, *KEY)
    life.kubelet()
    assert life.environments == {}
    assert life.names("Service") == life.names("NetworkPolicy") == []


async def test_a_finished_run_leaves_no_environment_running(life: Life) -> None:
    """Even if the operator died between the last status and its consequences."""
    life.apply_own()
    await work(life, "1-env-0-0")
    finished = life.client.run(KEY)
    await life.client.write_status(finished, finished.status.with_changes(phase="Succeeded"))
    await reconcile(KEY, life.client, lambda: life.now, PACE)
    life.kubelet()
    assert life.environments == {}
    assert POD_FINALIZER not in life.pods[0]["metadata"]["finalizers"]


async def _live(life: Life) -> tuple[Any, ...]:
    """A whole run in which an environment dies. Returns what must not depend on kills."""
    life.apply_own()
    await work(life, "1-env-0-0")
    life.fail_environment("1-env-0-0")
    await life.settle()
    await life.later(11)
    life.play_environment("1-env-0-1", ready())
    await life.settle()
    await life.change(environmentReplicas=2)
    await life.report("Succeeded", terminated(0), terminated(0, result()))
    life.kubelet()
    held = [POD_FINALIZER in pod["metadata"]["finalizers"] for pod in life.pods]
    children = [len(life.names(kind)) for kind in ("ConfigMap", "Service", "NetworkPolicy")]
    return life.status.phase, life.status.attempt, len(life.pods), held, list(life.environments), children


async def _fail(life: Life) -> tuple[Any, ...]:
    """A run that ends because of its environment."""
    life.apply_own(backoffLimit=0)
    await start(life, "1-env-0-0")
    await fail_four_times(life)
    stop(life, steps=3)
    await life.settle()
    failure = life.status.failure
    return life.status.phase, life.status.failed_attempts, failure and failure.message.split(" (")[0], len(life.pods)


async def _resume(life: Life) -> tuple[Any, ...]:
    """A run that is scaled down, stopped and resumed with more environments than before."""
    life.apply_own(environmentReplicas=2)
    await start(life, "1-env-0-0", "1-env-1-0")
    await life.change(environmentReplicas=1)
    life.kubelet()
    left = list(life.environments)
    await life.change(suspend=True)
    stop(life, steps=12)
    await life.settle()
    life.kubelet()
    stopped = life.status.phase, list(life.environments)
    await life.change(suspend=False, environmentReplicas=3)
    await life.report("Running", ready(), ready())
    return left, stopped, life.status.attempt, len(life.pods), list(life.environments)


Story = tuple[Callable[[Life], Awaitable[tuple[Any, ...]]], tuple[Any, ...], int, int]
STORIES: dict[str, Story] = {
    "an environment dies": (_live, ("Succeeded", 1, 1, [False], ["1-env-0-0"], [2, 1, 3]), 1, 20),
    "its environment fails": (_fail, ("Failed", 1, "failure 3", 1), 12, 21),
    "it is scaled, stopped and resumed": (
        _resume,
        (["1-env-0-0"], ("Stopped", []), 2, 2, ["2-env-0-0", "2-env-1-0", "2-env-2-0"]),
        12,
        25,
    ),
}
"""What happens, its end, the first write that the stories before do not have, and how many writes it takes."""


@pytest.mark.parametrize(("live", "end", "_", "writes"), STORIES.values(), ids=STORIES)
async def test_the_end_and_the_number_of_writes(life: Life, live: Any, end: Any, _: int, writes: int) -> None:
    assert await live(life) == end
    assert life.client.writes == writes


@BEFORE_OR_AFTER
@pytest.mark.parametrize(
    ("story", "nth"), [(name, nth) for name, story in STORIES.items() for nth in range(story[2], story[3] + 1)]
)
async def test_killed_at_any_write_the_end_is_the_same(life: Life, story: str, nth: int, before: bool) -> None:
    live, end, *_ = STORIES[story]
    life.client.dies_at, life.client.dies_before = nth, before
    assert await live(life) == end
    assert life.client.dies_at is None, "the kill did not happen"
