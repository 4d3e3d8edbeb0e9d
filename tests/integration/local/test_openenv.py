"""An OpenEnv server in local mode: a program that is started beside the environment, and one that runs already."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.local.conftest import Rlctl
from tests.ports import free_port

SERVER = Path("tests/data/programs/openenv_server.py").absolute()
EXAMPLE = Path("examples/openenv.yaml")
SORTING = {
    "total_steps": 2,
    "steps_per_eval": 100,
    "eval_items": 8,
    "group_size": 8,
    "batch_size": 32,
    "system_prompt": "",  # the bundled model knows the task by its prompt alone
    "max_turns": 1,
    "max_token_length": 32,
}


@pytest.fixture
def write_documents_of(tmp_path: Path) -> Any:
    """Writes RLEnvironment and run into one file, and returns its path."""

    def write_(name: str, **openenv: Any) -> str:
        head = {"apiVersion": "rl-operator.dev/v1alpha1", "metadata": {"name": name}}
        run = {"environment": f"own/{name}", "runtime": "tiny", "config": SORTING}
        documents = [
            {**head, "kind": "RLEnvironment", "spec": {"openenv": openenv}},
            {**head, "kind": "RLTrainingRun", "spec": run},
        ]
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return str(path)

    return write_


@pytest.fixture
def elsewhere(process: None, tmp_path: Path) -> Iterator[str]:
    """The URL of a server that runs already: the example's."""
    environment, _ = yaml.safe_load_all(EXAMPLE.read_text())
    port, log = free_port(), tmp_path / "server.log"
    with log.open("w") as output:
        words = [sys.executable, *environment["spec"]["openenv"]["command"][1:]]
        started = subprocess.Popen(words, env={"PORT": str(port)}, stdout=output, stderr=output)
    yield f"http://127.0.0.1:{port}"
    started.terminate()
    assert started.wait(60) == -signal.SIGTERM, log.read_text()


@pytest.mark.nightly(
    "operator/src/rl_operator/local/pods", "tinker-atropos/src/tinker_atropos/environments/adapters/openenv"
)
def test_a_program_trains_and_is_started_again_when_it_dies(shared_rlctl: Rlctl, write_documents_of: Any) -> None:
    rlctl, file = shared_rlctl, write_documents_of("served", command=["python", str(SERVER), "dies"], maxSessions=32)
    assert rlctl("validate", file, "--local").returncode == 0
    ran = rlctl("run", file, "--local")
    assert ran.returncode == 0, ran
    status = rlctl.status("served")
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1)
    assert status["environments"].get("failures", 0) == 0
    said = rlctl("logs", "served", "-c", "openenv", "--local").stdout
    assert said.count("serving dies at port") == 2, said
    assert "system_prompt" in rlctl("environments", "own/served", "--local").stdout


@pytest.mark.nightly(
    "operator/src/rl_operator/local", "tinker-atropos/src/tinker_atropos/environments/adapters/openenv"
)
def test_one_that_runs_already_trains(shared_rlctl: Rlctl, write_documents_of: Any, elsewhere: str) -> None:
    ran = shared_rlctl("run", write_documents_of("elsewhere", url=elsewhere), "--local")
    assert ran.returncode == 0, ran
    assert shared_rlctl.status("elsewhere")["phase"] == "Succeeded"
