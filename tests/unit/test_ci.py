"""The workflow of a fork runs the parts of .ci/run, all of them, and nothing of its own beside them."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
JOBS = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text(encoding="utf-8"))["jobs"]


def test_a_fork_runs_every_part() -> None:
    (parts,) = re.findall(r"^  ([\w |]+)\) tiers=\(\"\$1\"\)", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE)
    named = re.findall(r'"(\w+)"', JOBS["parts"]["strategy"]["matrix"]["part"])
    assert sorted(named) == sorted(parts.split(" | "))


def test_tests_are_run_by_those_parts_alone() -> None:
    """But for newer Pythons, which run one target."""
    scripts = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in JOBS.items()}
    assert '.ci/run "$PART"' in scripts.pop("parts")
    assert scripts.pop("newer-python") == ["make setup", "make test"]
    assert not [each for found in scripts.values() for each in found if "make" in each or "pytest" in each]
