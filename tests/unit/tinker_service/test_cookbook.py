"""Unmodified tinker-cookbook 0.6.1 trains against the service and resumes."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tinker

SCRIPT = Path(__file__).parents[2] / "data/cookbook/sorting.py"
WAIT = 100
OFFLINE = {"https_proxy": "http://127.0.0.1:9"}  # it would look up prices

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tinker_cookbook") is None, reason="needs tinker-cookbook: make setup installs it"
)


def train(env_vars: dict[str, str], log_folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(log_folder), *arguments],
        env={**os.environ, **OFFLINE, **env_vars},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.nightly("tinker-atropos/tinker-service/src/tinker_service")
@pytest.mark.timeout(2 * WAIT)
def test_its_rl_loop_trains_and_resumes(tinker_service, rest: tinker.RestClient, tmp_path: Path) -> None:
    """Synchronously, with importance_sampling, then asynchronously, with stable_reinforce: each as it is by default."""
    train(tinker_service.env_vars, tmp_path, "3")
    train(tinker_service.env_vars, tmp_path, "5", "async")
    steps = [row for row in lines(tmp_path / "metrics.jsonl") if "progress/done_frac" in row]
    assert [row["step"] for row in steps] == [0, 1, 2, 3, 4]
    assert all(abs(row["optim/kl_sample_train_v1"]) < 1e-5 for row in steps[:3])  # only sampled tokens are trained
    assert all(row["kl_pre_post_v2"] > 1e-4 for row in steps[:3] if 0 < row["env/all/reward/total"] < 1)  # and it moves
    assert [row["training_client/step"] for row in steps[3:]] == [3, 4]

    saved = lines(tmp_path / "checkpoints.jsonl")
    assert [(row["name"], row["batch"]) for row in (*saved[:2], saved[-1])] == [
        ("000002", 2),
        ("final", 3),
        ("final", 5),
    ]
    first, second = (row["state_path"].split("/")[2] for row in (saved[1], saved[-1]))
    assert first != second  # a new training run continues from a state
    record = rest.get_training_run(second).result(WAIT)
    assert record.last_checkpoint is not None
    assert record.last_checkpoint.tinker_path == saved[-1]["state_path"]
