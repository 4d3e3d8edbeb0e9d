"""Own environments, also several of them, as real processes next to the run's."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.local.conftest import Rlctl
from tests.integration.local.sorting_down import REWARDS, entry

WriteRun = Callable[..., str]
SHORT = {"total_steps": 2, "steps_per_eval": 100, "eval_items": 8}
STEPS = 40
# Seconds, in which it can be disturbed. The model soon sorts all digits, and groups of equal scores would take minutes.
LONG = {**SHORT, "total_steps": STEPS, "ensure_scores_are_not_same": False}

ENTRY = entry("rewards")


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    """The environment's file, next to the files of runs. Its folder contains other files, too."""
    (tmp_path / "sort_down.py").write_text(ENTRY)
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "unrelated.py").write_text("raise SystemExit('nobody runs this')\n")
    return tmp_path / "sort_down.py"


def documents(name: str, **spec: Any) -> str:
    """ConfigMap, RLEnvironment and run in one file."""
    api_version = "rl-operator.dev/v1alpha1"
    return yaml.safe_dump_all(
        [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "code"},
                "data": {"sort_down.py": ENTRY, "rewards.py": REWARDS},
            },
            {
                "apiVersion": api_version,
                "kind": "RLEnvironment",
                "metadata": {"name": "sort-down"},
                "spec": {"source": {"configMap": {"name": "code", "entry": "sort_down.py"}}},
            },
            {
                "apiVersion": api_version,
                "kind": "RLTrainingRun",
                "metadata": {"name": name},
                "spec": {"environment": "own/sort-down", "runtime": "tiny", "config": SHORT, **spec},
            },
        ]
    )


def environment_process(rlctl: Rlctl, name: str, slot: int) -> int | None:
    """The newest process of an environment pod."""
    pod = rlctl.store.get("RLTrainingRun", "default", name)["status"]["podName"]  # type: ignore[index]
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    mine = [line.split() for line in listed.splitlines() if f"{pod}-env-{slot}-" in line and " environment " in line]
    return int(mine[-1][0]) if mine else None


def over(status: dict[str, Any]) -> bool:
    return status.get("phase") in ("Succeeded", "Failed")


def test_a_file_trains_and_a_dead_environment_is_replaced(
    shared_rlctl: Rlctl, write_run: WriteRun, own_file: Path
) -> None:
    rlctl = shared_rlctl
    file = write_run("own-file", environment="./sort_down.py", config=LONG)
    planned = json.loads(rlctl("render", file, "--local", "-o", "json").stdout)["items"]
    assert rlctl("run", file, "--local", "--detach").returncode == 0
    rlctl.wait_for("own-file", lambda s: s.get("progress", {}).get("step", 0) >= 1, "a step")
    not_planned = {each for each in _objects(rlctl, "own-file") if each[1].endswith("-ops")}
    assert {kind for kind, _ in not_planned} == {"NetworkPolicy"}, "who may get in is known to the operator only"
    assert sorted(set(_objects(rlctl, "own-file")) - not_planned) == sorted(
        (item["kind"], _named(item, rlctl, "own-file")) for item in planned
    )
    own_file.write_text("raise SystemExit('what was frozen is what runs')\n")
    pid = environment_process(rlctl, "own-file", 0)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    status = rlctl.wait_for("own-file", over, "the end")
    assert status["phase"] == "Succeeded", status
    assert (status["attempt"], status["environments"]["failures"]) == (1, 1)
    newest = rlctl("logs", "own-file", "-c", "environment", "--local")
    assert "the run is over" in newest.stdout, newest
    assert f"evaluation at step {STEPS}" in newest.stdout, newest
    logs = sorted(path.name for path in (rlctl.root / "pods" / "default").glob("own-file-*-env-*"))
    assert [name.rpartition("-env-")[2] for name in logs] == ["0-0", "0-1"]
    assert "own-file" in rlctl("delete", "own-file", "--local").stdout
    assert _objects(rlctl, "own-file") == []


@pytest.mark.nightly("operator/src/rl_operator/local/pods", "operator/src/rl_operator/local/programs")
def test_one_file_with_all_documents(shared_rlctl: Rlctl, tmp_path: Path) -> None:
    rlctl, file = shared_rlctl, tmp_path / "all.yaml"
    file.write_text(documents("own-object"))
    validated = rlctl("validate", str(file), "--local")
    assert validated.returncode == 0, validated
    assert rlctl.store.get("RLEnvironment", "default", "sort-down") is None
    ran = rlctl("run", str(file), "--local")
    assert ran.returncode == 0, ran
    assert "RLEnvironment sort-down is applied" in ran.stderr
    listed = rlctl("environments", "--local")
    assert re.search(r"^own/sort-down +Ready", listed.stdout, re.MULTILINE), listed
    assert "group_size" in rlctl("environments", "own/sort-down", "--local").stdout
    again = rlctl("diff", str(file), "--local")
    assert (again.returncode, again.stderr) == (0, ""), again


@pytest.mark.nightly("operator/src/rl_operator/local/pods", "operator/src/rl_operator/local/programs")
def test_two_environments(shared_rlctl: Rlctl, write_run: WriteRun) -> None:
    rlctl = shared_rlctl
    file = write_run("pair", config=LONG, environmentReplicas=2)
    assert rlctl("run", file, "--local", "--detach").returncode == 0
    rlctl.wait_for("pair", lambda s: s.get("environments", {}).get("ready") == 1, "the second environment")
    status = rlctl.wait_for("pair", over, "the end")
    assert status["phase"] == "Succeeded", status
    first, second = (rlctl("logs", "pair", "-c", c, "--local").stdout for c in ("environment", "environment-1"))
    assert "evaluation at step 0" in first
    assert second
    assert "evaluation at step" not in second
    none = rlctl("logs", "pair", "-c", "environment-2", "--local")
    assert (none.returncode, none.stderr.count("environment-1")) == (2, 1)


def test_a_broken_file_is_refused_with_its_line_until_it_is_fixed(
    rlctl: Rlctl, write_run: WriteRun, own_file: Path
) -> None:
    own_file.write_text(ENTRY + "    def score(self:\n")
    file = write_run("broken", environment="./sort_down.py", suspend=True)
    line = ENTRY.count("\n") + 1
    for verb in ("validate", "render", "run"):
        refused = rlctl(verb, file, "--local")
        assert refused.returncode == 2, refused
        assert f"sort_down.py, line {line}" in refused.stderr
    assert rlctl.status("broken")["refusals"][0]["code"] == "EnvironmentNotReady"
    own_file.write_text(ENTRY)
    fixed = rlctl("run", file, "--local")
    assert fixed.returncode == 0, fixed
    assert rlctl.status("broken")["phase"] == "Draft"
    assert "rlctl resume broken --local" in fixed.stdout


def _objects(rlctl: Rlctl, run: str) -> list[tuple[str, str]]:
    """Kinds and names of what belongs to a run."""
    kinds = ("ConfigMap", "NetworkPolicy", "Service", "Pod")
    return [
        (kind, each["metadata"]["name"])
        for kind in kinds
        for each in rlctl.store.list_all(kind, "default", prefix=f"{run}-")
    ]


def _named(item: dict[str, Any], rlctl: Rlctl, run: str) -> str:
    """The name of a planned object with the run's real uid; a ConfigMap's hash comes from it."""
    manifest = rlctl.store.get("RLTrainingRun", "default", run)
    assert manifest is not None
    name = item["metadata"]["name"]
    if item["kind"] != "ConfigMap":
        return str(name.replace("00000", manifest["metadata"]["uid"][:5]))
    source = [n for kind, n in _objects(rlctl, run) if kind == "ConfigMap" and "-source-" in n]
    return str(source[0] if "-source-" in name else manifest["status"]["configMapName"])
