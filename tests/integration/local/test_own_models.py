"""A model of one's own trains on this machine, with its own Tinker service and its own context."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.local.conftest import Rlctl

from rl_contract.bundled import bundled_model_folder
from rl_operator.local.model_runtimes import read_model
from rl_operator.local.state.locks import holder

CONTEXT = 640  # the bundled model's is 512


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A Hugging Face folder with its own name and context."""
    folder = tmp_path / "Toy_Qwen3-0.5M"
    shutil.copytree(bundled_model_folder(), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    return folder


def test_a_model_of_ones_own_is_trained_and_shown(
    shared_rlctl: Rlctl, write_run: Callable[..., str], model: Path
) -> None:
    rlctl, runtime = shared_rlctl, read_model(model).runtime
    short = {"total_steps": 1, "steps_per_eval": 100, "eval_items": 8, "max_token_length": 32}
    file = write_run("own-model", config=short)
    ran = rlctl("run", file, "--local", "--model", str(model))
    assert ran.returncode == 0, ran
    assert f"RLRuntime {runtime} is applied" in ran.stderr
    assert "trained sort_digits for 1 steps" in ran.stdout
    assert runtime in ran.stdout
    service = rlctl.layout.service_of(runtime)
    assert holder(service / "running.lock") not in (None, holder(rlctl.layout.service / "running.lock"))
    assert f"loaded {model.name} (float64) from {model}" in (service / "log").read_text()
    log = rlctl("logs", "own-model", "-c", "trainer", "--local").stdout
    assert f"step 0, {model.name} with a context of {CONTEXT} tokens" in log
    shown = rlctl("render", file, "--local", "--model", str(model)).stdout
    assert f"model_name: {model.name}\n" in shown
    assert f"tokenizer_name: {model}\n" in shown

    assert rlctl("sample", "own-model", "sort 4 1 3 2", "--local").returncode == 0
    (model / "config.json").write_text((bundled_model_folder() / "config.json").read_text())
    exchanged = rlctl("sample", "own-model", "sort 4 1 3 2", "--local")
    assert (exchanged.returncode, "it is no longer the model of runtime" in exchanged.stderr) == (2, True), exchanged
