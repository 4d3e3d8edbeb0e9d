"""A state folder on a full disk: a clear message, nothing lost, and it continues when there is space."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.local.conftest import Rlctl, end_everything
from tests.integration.local.scene import STEPS, Scene
from tests.integration.local.scripted import RUN_FILE
from tests.small_disks import filled, mounted


@pytest.fixture
def small_disk(process: None, tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with mounted(tmp_path / "disk", "4m") as folder:
        yield folder
        end_everything(folder)


@pytest.fixture
def scene(small_disk: Path, tmp_path: Path) -> Scene:
    return Scene(Rlctl(small_disk), tmp_path / "ledger")


def test_a_training_run_reaches_its_end(scene: Scene, small_disk: Path) -> None:
    scene.start()
    scene.until(lambda: len(scene.noted("pids")) == 2, "both containers to start")
    scene.until(lambda: scene.noted("stood"), "the trainer's result file")
    with filled(small_disk):
        scene.allow("go", "save", "leave", "finish")
        scene.until(lambda: len(scene.noted("steps")) == STEPS, "all steps")
        listed = scene.rlctl("list", "--local")
        assert listed.returncode == 0
        assert f"No room is left in {small_disk} (0 of " in listed.stderr
    status = scene.until_phase("Succeeded")
    assert [attempt["reason"] for attempt in status["attempts"]] == ["Succeeded"]
    scene.check()


def test_a_run_that_cannot_start_waits_for_disk_space(scene: Scene, small_disk: Path) -> None:
    scene.allow("go", "save", "leave", "finish")
    scene.put()
    with filled(small_disk):
        listed = scene.rlctl("list", "--local")
        assert "No room is left" in listed.stderr
        assert listed.returncode in (0, 3), listed
        assert "Traceback" not in listed.stderr
        assert scene.noted("pids") == []
    scene.look()
    status = scene.until_phase("Succeeded")
    assert [attempt["reason"] for attempt in status["attempts"]] == ["Succeeded"]
    scene.check()


def test_a_disk_without_room_for_another_file_is_named(process: None, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "4m", files=10) as folder:
        assert f"No room is left in {folder} (9 of 10 files free)" in Rlctl(folder)("list", "--local").stderr


def test_nothing_new_is_started_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    rlctl, file = Rlctl(small_disk), tmp_path / "run.yaml"
    file.write_text(RUN_FILE.replace("sort_digits}", "sort_digits, runtime: tiny}"))
    with filled(small_disk):
        refused = rlctl("run", str(file), "--local", "--detach")
        assert refused.returncode == 3, refused
        assert "No space left on device" in refused.stderr
        assert "free some space" in refused.stderr
        assert "Traceback" not in refused.stderr
        looked = rlctl("doctor")
        assert f"cannot write in {small_disk}: No space left on device" in looked.stdout, looked
    assert "No runs in" in rlctl("list", "--local").stdout


def test_runs_can_be_deleted_to_free_space(scene: Scene, small_disk: Path) -> None:
    scene.allow("go", "save", "leave")
    scene.start()
    scene.until_held()
    with filled(small_disk):
        deleted = scene.rlctl("delete", "run", "--local")
        assert deleted.returncode == 0, deleted
    scene.check()
    assert not list(scene.rlctl.layout.objects.rglob("*.json"))
