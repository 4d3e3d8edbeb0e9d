"""pip, for machines without uv; with a package that needs no index."""

import os
from pathlib import Path

import pytest
from tests.tiny_packages import make_package

from rl_operator.errors import RefusedError
from rl_operator.local.interpreters.package_installer import PackageInstaller, find_installer

pytestmark = pytest.mark.process

OFFLINE = {**os.environ, "PIP_NO_INDEX": "1"}


@pytest.fixture
def lock(tmp_path: Path) -> int:
    return os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)


def test_pip_installs_and_says_what_it_does(tmp_path: Path, lock: int) -> None:
    package = make_package(tmp_path / "tiny", "tiny-words", {"tiny_words.py": "WORDS = []\n"})
    steps: list[str] = []
    PackageInstaller((), OFFLINE).build(tmp_path / "venv", [f"tiny-words @ {package.as_uri()}"], lock, steps.append)
    assert list(tmp_path.glob("venv/lib/*/site-packages/tiny_words.py"))
    assert steps[0] == "making a virtual environment"
    assert any(step.startswith("pip installs tiny-words") for step in steps)
    assert any(step.startswith("Successfully installed tiny-words") for step in steps)


def test_what_pip_said_last_is_in_the_refusal(tmp_path: Path, lock: int) -> None:
    with pytest.raises(RefusedError, match=r"(?s)pip could not install it.*No matching distribution found for nosuch"):
        PackageInstaller((), OFFLINE).build(tmp_path / "venv", ["nosuch"], lock, lambda _: None)


def test_a_setting_of_pip_that_uv_does_not_know_makes_pip_install(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nproxy = http://proxy.example\n")
    assert find_installer({**os.environ, "PIP_CONFIG_FILE": str(config)}).name == "pip"
