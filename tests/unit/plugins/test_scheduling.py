"""Which worker gets which tests, in a separate run of pytest."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SHARED = """
import pytest

@pytest.fixture(scope="session")
def control_plane():
    pass

@pytest.mark.parametrize("number", range(4))
def test_it(control_plane, number):
    pass
"""
OWN = SHARED.replace("control_plane", "own")


def test_files_that_share_a_program_run_on_one_worker_and_others_on_any(tmp_path: Path) -> None:
    for name, source in {"own_1": OWN, "shared_1": SHARED, "own_2": OWN, "shared_2": SHARED}.items():
        (tmp_path / f"test_{name}.py").write_text(source)
    loaded = ["-p", "tests.plugins.scheduling", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:asyncio"]
    workers = ["-v", "--numprocesses", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *loaded, *workers, str(tmp_path)],
        env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    ran = defaultdict(list)
    for worker, file in re.findall(r"\[(gw\d)\] .*PASSED \S*test_(\w+)\.py", ended.stdout):
        ran[worker].append(file)
    [together] = [files for files in ran.values() if "shared_1" in files]
    assert together[:8] == ["shared_1"] * 4 + ["shared_2"] * 4, ended.stdout
    assert {file for files in ran.values() for file in files if files is not together} <= {"own_1", "own_2"}
