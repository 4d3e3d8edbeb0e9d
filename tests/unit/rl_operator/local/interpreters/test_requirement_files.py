"""A requirements.txt as the key of an interpreter."""

from pathlib import Path

import pytest

from rl_operator.local.interpreters.installed import Installed
from rl_operator.local.interpreters.requirement_files import fault_of, interpreter_name, requirements_recipe

INSTALLED = Installed("0.1.0", {}, "here")


def test_equal_requirements_share_an_interpreter() -> None:
    name = interpreter_name("numpy\nsympy==1.14 # exact\n", INSTALLED)
    assert name == interpreter_name("# both\n\nsympy==1.14\n  numpy\n", INSTALLED)
    assert name != interpreter_name("numpy\nsympy==1.15\n", INSTALLED)
    assert name != interpreter_name("numpy\nsympy==1.14\n", Installed("0.1.0", {}, "there"))
    assert interpreter_name("mine @ https://example.com/a.whl#sha256=0\n", INSTALLED) != interpreter_name(
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
