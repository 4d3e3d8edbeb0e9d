"""`kill -9` of each process of a run, in each phase: the run ends, and nothing is trained twice."""

from typing import Any

import pytest
from tests.integration.local.scene import STEPS, Scene


def trainer_is_over(status: dict[str, Any]) -> bool:
    return any(c["name"] == "trainer" and c["state"] == "Terminated" for c in status.get("containers", ()))


nightly = pytest.mark.nightly("operator/src/rl_operator/local", "operator/src/rl_operator/reconcile")
"""More than one at a time, where one shows the same."""

ALL = ("supervisor", "reaper", "api", "trainer", "environment")


def victims(merge: tuple[str, ...], *others: tuple[str, ...]) -> pytest.MarkDecorator:
    """One choice for each change, the others nightly."""
    return pytest.mark.parametrize(
        "victims", [merge, *(pytest.param(each, marks=nightly) for each in others)], ids="+".join
    )


@victims(ALL, ("supervisor",), ("supervisor", "reaper"))
def test_while_it_starts(scene: Scene, victims: tuple[str, ...]) -> None:
    scene.start()
    scene.until(lambda: len(scene.noted("pids")) == 2, "both containers to start")
    scene.kill(*victims)
    scene.allow("go", "save", "leave", "finish")
    scene.look()
    status = scene.until_phase("Succeeded")
    assert status["attempts"][0]["reason"] == "SupervisorLost"
    scene.check()


@pytest.mark.parametrize(
    ("victims", "reasons"),
    [
        (("api",), ["Succeeded"]),
        (("trainer",), ["TrainerFailed", "Succeeded"]),
        (("environment",), ["EnvironmentFailed", "Succeeded"]),
        (("reaper",), ["Succeeded"]),
        (("supervisor",), ["SupervisorLost", "Succeeded"]),
        pytest.param(("supervisor", "reaper"), ["SupervisorLost", "Succeeded"], marks=nightly),
        pytest.param(ALL, ["SupervisorLost", "Succeeded"], marks=nightly),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_while_it_runs(scene: Scene, victims: tuple[str, ...], reasons: list[str]) -> None:
    scene.allow("go", "save", "leave")
    scene.start()
    scene.until_held()
    scene.kill(*victims)
    scene.allow("finish")
    scene.look()
    status = scene.until_phase("Succeeded")
    assert [attempt["reason"] for attempt in status["attempts"]] == reasons
    assert len(scene.noted("steps")) == STEPS
    scene.check()


@victims(("supervisor",), ("trainer",), ("supervisor", "reaper", "api", "trainer"))
def test_while_it_stops(scene: Scene, victims: tuple[str, ...]) -> None:
    scene.allow("go", "leave")
    scene.start()
    scene.until_held()
    scene.rlctl("stop", "run", "--local", "--timeout", "1")
    scene.until_phase("Stopping")
    scene.kill(*victims)
    scene.look()
    status = scene.until_phase("Stopped")
    assert status["checkpoint"]["step"] == len(scene.noted("steps"))
    scene.check()


@victims(("supervisor",), ("environment",), ("supervisor", "reaper", "api", "environment"))
def test_just_at_the_end(scene: Scene, victims: tuple[str, ...]) -> None:
    """The trainer is done, its pod is not: its training counts."""
    scene.allow("go", "save", "finish")
    scene.start()
    scene.rlctl.wait_for("run", trainer_is_over, "the trainer's end")
    scene.kill(*victims)
    scene.allow("leave")
    scene.look()
    status = scene.until_phase("Succeeded")
    assert [attempt["reason"] for attempt in status["attempts"]] == ["Succeeded"]
    scene.check()


def test_a_follower_may_die(scene: Scene) -> None:
    scene.allow("go", "save", "leave")
    scene.start()
    follower = scene.rlctl.start("watch", "run", "--local")
    scene.until_held()
    follower.kill()
    follower.communicate(timeout=60)
    scene.allow("finish")
    assert [attempt["reason"] for attempt in scene.until_phase("Succeeded")["attempts"]] == ["Succeeded"]
    scene.check()


def test_while_it_is_deleted(scene: Scene) -> None:
    """Listing runs afterwards cleans up the rest."""
    scene.allow("go", "leave")
    scene.start()
    scene.until_held()
    deleting = scene.rlctl.start("delete", "run", "--local")
    scene.until(lambda: scene.rlctl.store.get("RLTrainingRun", "default", "run") is None, "the run to be gone")
    pod = next(scene.rlctl.store.list_all("Pod"))["metadata"]["name"]
    deleting.kill()
    deleting.communicate(timeout=60)
    scene.kill("supervisor", "reaper")
    scene.look()
    scene.until(lambda: not list(scene.rlctl.store.list_all("Pod")), f"pod {pod} to be gone")
    scene.check()
    scene.look()
    assert [*scene.rlctl.layout.all_pod_folders, *scene.rlctl.layout.all_events] == []
