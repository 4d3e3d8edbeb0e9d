"""What is in interpreters, which environments they are for, and when they are removed."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_operator.local.interpreters.interpreter import Installed, Interpreter, Marker, Recipe, used_file
from rl_operator.local.interpreters.interpreters import (
    KEPT_SECONDS,
    REPLACED_SECONDS,
    Interpreters,
    fault_of,
    in_use,
    library_recipe,
    remove_unused,
    requirements_name,
    requirements_recipe,
)
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.locks import FileLock
from rl_operator.operator_errors import RefusedError

INSTALLED = Installed("0.1.0", {}, "here")
Make = Callable[..., Path]


def marked(recipe: Recipe) -> Marker:
    return Marker("build-1", recipe.installed.told, recipe.installed.stamp, recipe.stamp, recipe.packages, 1.0, 1)


def test_packages_are_added_and_a_version_replaces_another(tmp_path: Path) -> None:
    first = library_recipe(INSTALLED, None, ["Some_Taskset==1.0", str(tmp_path)])
    assert first.arguments == [
        "tinker-atropos[verifiers]==0.1.0",
        "Some_Taskset==1.0",
        "--editable",
        str(tmp_path.resolve()),
    ]
    second = library_recipe(INSTALLED, marked(first), ["some-taskset==2.0", "other"])
    assert list(second.packages.values()) == [
        ("some-taskset==2.0",),
        ("--editable", str(tmp_path.resolve())),
        ("other",),
    ]
    assert second.stamp != first.stamp


def test_the_same_again_has_the_same_stamp_until_something_changes(tmp_path: Path) -> None:
    first = library_recipe(INSTALLED, None, [str(tmp_path)])
    assert library_recipe(INSTALLED, marked(first), []).stamp == first.stamp
    (tmp_path / "pyproject.toml").write_text("[project]\n")  # it may require more now
    changed = library_recipe(INSTALLED, marked(first), [])
    assert changed.stamp != first.stamp
    upgraded = library_recipe(Installed("0.2.0", {}, "there"), marked(first), [])
    assert upgraded.stamp not in (first.stamp, changed.stamp)


@pytest.mark.parametrize("asked", ["./nowhere", "~nobody/x", "folder/inside", "==1.0", ""])
def test_what_is_neither_a_name_nor_a_folder_is_refused(asked: str) -> None:
    with pytest.raises(RefusedError):
        library_recipe(INSTALLED, None, [asked])


def test_an_address_is_a_package() -> None:
    recipe = library_recipe(INSTALLED, None, ["mine @ https://example.com/mine-1.0-py3-none-any.whl"])
    assert list(recipe.packages) == ["mine"]


def test_absent_outdated_and_there(tmp_path: Path) -> None:
    interpreters = Interpreters(Layout(tmp_path), os.environ)
    absent = interpreters.absence()
    assert absent is not None
    assert "rlctl environments install verifiers" in absent
    folder = interpreters.named("verifiers").folder
    folder.mkdir(parents=True)
    told = {"build": "build-1", "tinker_atropos": "0.0.1", "base_stamp": "another", "stamp": "", "packages": {}}
    file = folder / "installed.json"
    file.write_text(json.dumps({**told, "seconds": 1.0, "size": 1}))
    outdated = interpreters.absence()
    assert outdated is not None
    assert f"made for tinker-atropos 0.0.1, and now there is {interpreters.installed().told}" in outdated
    file.write_text(json.dumps({**told, "base_stamp": interpreters.installed().stamp, "seconds": 1.0, "size": 1}))
    assert interpreters.absence() is None


def test_equal_requirements_share_an_interpreter() -> None:
    name = requirements_name("numpy\nsympy==1.14 # exact\n", INSTALLED)
    assert name == requirements_name("# both\n\nsympy==1.14\n  numpy\n", INSTALLED)
    assert name != requirements_name("numpy\nsympy==1.15\n", INSTALLED)
    assert name != requirements_name("numpy\nsympy==1.14\n", Installed("0.1.0", {}, "there"))
    assert requirements_name("mine @ https://example.com/a.whl#sha256=0\n", INSTALLED) != requirements_name(
        "mine @ https://example.com/a.whl#sha256=1\n", INSTALLED
    )


def test_the_recipe_installs_the_file_beside_tinker_atropos() -> None:
    recipe = requirements_recipe("numpy  # fast\n", INSTALLED, Path("/state/requirements.txt"))
    assert recipe.arguments == ["tinker-atropos==0.1.0", "--requirement", "/state/requirements.txt"]
    assert list(recipe.packages) == ["numpy"]


@pytest.mark.parametrize(
    "line", ["-r more.txt", "-c bounds.txt", "--requirement=more.txt", "./mine", "-e .", "--editable ../mine", "."]
)
def test_what_the_text_alone_does_not_say_is_refused(line: str) -> None:
    fault = fault_of(f"numpy\n{line}\n")
    assert fault is not None
    assert fault.startswith(f"requirements.txt, line 2: {line!r}")


@pytest.mark.parametrize("line", ["-e /src/mine", "mine @ file:///src/mine", "--index-url https://a.example", "# ./x"])
def test_what_it_says_is_installed(line: str) -> None:
    assert fault_of(f"{line}\n") is None


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


@pytest.fixture
def make_build(layout: Layout) -> Make:
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


def test_one_of_a_file_goes_a_day_after_its_last_run(layout: Layout, make_build: Make) -> None:
    old, recent = make_build("requirements-a", 1, KEPT_SECONDS + 60), make_build("requirements-b", 1, KEPT_SECONDS - 60)
    named = make_build("requirements-c", 1, KEPT_SECONDS + 60)
    note(layout, "run-0-1", named)
    remove_unused(layout)
    assert [each.exists() for each in (old, recent, named)] == [False, True, True]
    assert Interpreter(layout.interpreters / "requirements-a").marker is None


def test_a_library_stays_until_it_is_removed(layout: Layout, make_build: Make) -> None:
    library = make_build("verifiers", 1, KEPT_SECONDS * 100)
    remove_unused(layout)
    assert library.exists()


def test_a_replaced_build_goes_when_no_process_uses_it(layout: Layout, make_build: Make) -> None:
    replaced = make_build("verifiers", 1, REPLACED_SECONDS + 60)
    just_replaced, current = make_build("verifiers", 2, 0), make_build("verifiers", 3, REPLACED_SECONDS + 60)
    lock = FileLock(note(layout, "run-0-1", replaced))
    assert lock.take()
    assert in_use(layout) == [replaced]
    remove_unused(layout)
    assert replaced.exists()
    lock.give_back()
    remove_unused(layout)
    assert [each.exists() for each in (replaced, just_replaced, current)] == [False, True, True]


def test_what_is_being_built_is_left_alone(layout: Layout, make_build: Make) -> None:
    make_build("verifiers", 1, 0)
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
