"""Which interpreters are removed, and when."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_operator.local.interpreters.interpreter import Interpreter, used_file
from rl_operator.local.interpreters.unused import KEPT_SECONDS, REPLACED_SECONDS, in_use, remove_unused
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.locks import FileLock

Make = Callable[..., Path]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


@pytest.fixture
def build(layout: Layout) -> Make:
    """Makes a build, idle for some seconds; the last one of a name is in force."""

    def make(name: str, number: int, idle: float) -> Path:
        folder = layout.interpreters / name
        place = folder / f"build-{number}"
        place.mkdir(parents=True)
        used_file(place).touch()
        moment = time.time() - idle
        os.utime(used_file(place), (moment, moment))
        told = {"tinker_atropos": "1", "base_stamp": "", "stamp": "", "packages": {}, "seconds": 1.0, "size": 1}
        (folder / "installed.json").write_text(json.dumps({"build": place.name, **told}))
        return place

    return make


def note(layout: Layout, pod: str, build: Path) -> Path:
    """As the launch of a container leaves it; returns the container's lock."""
    folder = layout.pod("default", pod)
    folder.interpreter("environment").parent.mkdir(parents=True)
    folder.interpreter("environment").write_text(str(build))
    return folder.lock("environment")


def test_one_of_a_file_goes_a_day_after_its_last_run(layout: Layout, build: Make) -> None:
    old, recent = build("requirements-a", 1, KEPT_SECONDS + 60), build("requirements-b", 1, KEPT_SECONDS - 60)
    named = build("requirements-c", 1, KEPT_SECONDS + 60)
    note(layout, "run-0-1", named)
    remove_unused(layout)
    assert [each.exists() for each in (old, recent, named)] == [False, True, True]
    assert Interpreter(layout.interpreters / "requirements-a").marker is None


def test_a_library_stays_until_it_is_removed(layout: Layout, build: Make) -> None:
    library = build("verifiers", 1, KEPT_SECONDS * 100)
    remove_unused(layout)
    assert library.exists()


def test_a_replaced_build_goes_when_no_process_uses_it(layout: Layout, build: Make) -> None:
    replaced = build("verifiers", 1, REPLACED_SECONDS + 60)
    just_replaced, current = build("verifiers", 2, 0), build("verifiers", 3, REPLACED_SECONDS + 60)
    lock = FileLock(note(layout, "run-0-1", replaced))
    assert lock.take()
    assert list(in_use(layout)) == [replaced]
    remove_unused(layout)
    assert replaced.exists()
    lock.give_back()
    remove_unused(layout)
    assert [each.exists() for each in (replaced, just_replaced, current)] == [False, True, True]


def test_what_is_being_built_is_left_alone(layout: Layout, build: Make) -> None:
    build("verifiers", 1, 0)
    unfinished = layout.interpreters / "verifiers" / "build-2"
    unfinished.mkdir()
    lock = FileLock(layout.interpreters / "verifiers.lock")
    assert lock.take()
    remove_unused(layout)
    failed = layout.interpreters / "requirements-a"
    failed.mkdir()
    (failed / "requirements.txt").write_text("nosuch\n")
    remove_unused(layout)
    assert unfinished.exists()
    lock.give_back()
    remove_unused(layout)
    assert not unfinished.exists()
    assert not failed.exists()
