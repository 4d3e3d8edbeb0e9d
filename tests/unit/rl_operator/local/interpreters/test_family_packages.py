"""What a user adds to a library of environments."""

from pathlib import Path

import pytest

from rl_operator.errors import RefusedError
from rl_operator.local.interpreters.family_packages import family_absence, family_recipe, require_family
from rl_operator.local.interpreters.installed import Installed
from rl_operator.local.interpreters.interpreter import Marker, Recipe

INSTALLED = Installed("0.1.0", {}, "here")


def marked(recipe: Recipe) -> Marker:
    return Marker("build-1", recipe.base_told, recipe.base_stamp, recipe.stamp, recipe.packages, 1.0, 1)


def test_packages_are_added_and_a_version_replaces_another(tmp_path: Path) -> None:
    first = family_recipe("verifiers", INSTALLED, None, ["Some_Taskset==1.0", str(tmp_path)])
    assert first.arguments == [
        "tinker-atropos[verifiers]==0.1.0",
        "Some_Taskset==1.0",
        "--editable",
        str(tmp_path.resolve()),
    ]
    second = family_recipe("verifiers", INSTALLED, marked(first), ["some-taskset==2.0", "other"])
    assert list(second.packages.values()) == [
        ("some-taskset==2.0",),
        ("--editable", str(tmp_path.resolve())),
        ("other",),
    ]
    assert second.stamp != first.stamp


def test_the_same_again_has_the_same_stamp_until_something_changes(tmp_path: Path) -> None:
    first = family_recipe("verifiers", INSTALLED, None, [str(tmp_path)])
    assert family_recipe("verifiers", INSTALLED, marked(first), []).stamp == first.stamp
    (tmp_path / "pyproject.toml").write_text("[project]\n")  # it may require more now
    changed = family_recipe("verifiers", INSTALLED, marked(first), [])
    assert changed.stamp != first.stamp
    upgraded = family_recipe("verifiers", Installed("0.2.0", {}, "there"), marked(first), [])
    assert upgraded.stamp not in (first.stamp, changed.stamp)


@pytest.mark.parametrize("asked", ["./nowhere", "~nobody/x", "folder/inside", "==1.0", ""])
def test_what_is_neither_a_name_nor_a_folder_is_refused(asked: str) -> None:
    with pytest.raises(RefusedError):
        family_recipe("verifiers", INSTALLED, None, [asked])


def test_an_address_is_a_package() -> None:
    recipe = family_recipe("verifiers", INSTALLED, None, ["mine @ https://example.com/mine-1.0-py3-none-any.whl"])
    assert list(recipe.packages) == ["mine"]


def test_an_unknown_library_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(RefusedError, match=r"'nemo' .* \(there is: verifiers\)"):
        require_family("nemo")


def test_absent_outdated_and_there() -> None:
    marker = marked(family_recipe("verifiers", INSTALLED, None, []))
    absent, outdated = (
        family_absence("verifiers", INSTALLED, None),
        family_absence("verifiers", Installed("0.2.0", {}, "there"), marker),
    )
    assert absent is not None
    assert "rlctl environments install verifiers" in absent
    assert outdated is not None
    assert "made for tinker-atropos 0.1.0, and now there is 0.2.0" in outdated
    assert family_absence("verifiers", INSTALLED, marker) is None
