import sys
from pathlib import Path

import pytest

from rl_operator.programs import ProgramMissingError, find_program, has_torch


def test_programs_are_searched_next_to_this_python_first(tmp_path: Path) -> None:
    for name in ("python", "only-here"):
        (tmp_path / name).touch(mode=0o755)
    assert find_program("python", str(tmp_path)) == str(Path(sys.executable).parent / "python")
    assert find_program("only-here", str(tmp_path)) == str(tmp_path / "only-here")


def test_a_missing_program_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ProgramMissingError, match=r"'nowhere' is not there; install it .*pip install 'tinker-atropos"):
        find_program("nowhere", str(tmp_path))


@pytest.mark.process
def test_torch_is_looked_for_where_the_program_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = str(Path(sys.executable).with_name("tinker-atropos"))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not has_torch(beside)
    elsewhere, linked = tmp_path / "tinker-atropos", tmp_path / "bin" / "tinker-atropos"
    elsewhere.touch(mode=0o755)
    linked.parent.mkdir()
    linked.symlink_to(elsewhere)
    assert has_torch(str(linked)), "nothing says that it is missing"
    for code, there in ((0, True), (1, False)):
        (tmp_path / "python").write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
        (tmp_path / "python").chmod(0o755)
        assert has_torch(str(linked)) is there
