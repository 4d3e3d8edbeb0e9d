import sys
from pathlib import Path

import pytest

from rl_operator.programs import ProgramMissingError, find_program


def test_programs_are_searched_next_to_this_python_first(tmp_path: Path) -> None:
    for name in ("python", "only-here"):
        (tmp_path / name).touch(mode=0o755)
    assert find_program("python", str(tmp_path)) == str(Path(sys.executable).parent / "python")
    assert find_program("only-here", str(tmp_path)) == str(tmp_path / "only-here")


def test_a_missing_program_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ProgramMissingError, match=r"'nowhere' is not there; install it .*pip install tinker-atropos"):
        find_program("nowhere", str(tmp_path))
