"""A real run that starts from another one's weights. They share one Tinker service."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.local.conftest import Rlctl, run_writer

pytestmark = [
    pytest.mark.timeout(600),  # the first test also trains the parent
    pytest.mark.nightly("operator/src/rl_operator/local", "tinker-atropos/src/tinker_atropos/trainer"),
]

WriteRun = Callable[..., str]
SHORT = {"total_steps": 3, "steps_per_eval": 100, "group_size": 4, "batch_size": 16, "eval_items": 100}
RANK = {"lora_rank": 8, "save_checkpoint_interval": 1}


@pytest.fixture(scope="module")
def parent(shared_rlctl: Rlctl, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The finished run `parent`, of three steps."""
    write_run = run_writer(tmp_path_factory.mktemp("runs"))
    _train(shared_rlctl, write_run("parent", config=SHORT, trainer=RANK), "parent")
    manifest: dict[str, Any] = json.loads(shared_rlctl("get", "parent", "--local", "-o", "json").stdout)
    return manifest


def _train(rlctl: Rlctl, file: str, name: str) -> None:
    """Run to the end, with W&B's offline files."""
    begun = rlctl("run", file, "--local", "--detach", WANDB_MODE="offline")
    assert begun.returncode == 0, begun
    over = rlctl.wait_for(name, lambda status: status.get("phase") in ("Succeeded", "Failed"), "the run's end")
    assert over["phase"] == "Succeeded", over


def test_a_child_continues_with_its_parents_weights_optimizer_and_data(
    shared_rlctl: Rlctl, write_run: WriteRun, parent: dict[str, Any]
) -> None:
    rlctl, status = shared_rlctl, parent["status"]
    start_from = {"run": "parent", "withOptimizer": True, "data": "continue"}
    file = write_run("child", config=SHORT, trainer=RANK, startFrom=start_from)
    _train(rlctl, file, "child")
    child = rlctl.status("child")
    began = child["startedFrom"]
    assert began == {
        "run": "parent",
        "uid": parent["metadata"]["uid"],
        "step": 3,
        "statePath": status["weights"]["statePath"],
        **({"wandbUrl": status["wandb"]["url"]} if status["wandb"].get("url") else {}),
    }
    assert (child["phase"], child["progress"]["step"]) == ("Succeeded", 3)
    assert (status["items"]["trained"], child["items"]["trained"]) == (12, 24), "its account goes on, too"
    assert re.search(r"items +\d+ seen = 24 trained \+ ", rlctl("get", "child", "--local").stdout)
    assert re.search(r"began with +the weights of parent after step 3", rlctl("get", "child", "--local").stdout)
    log = rlctl("logs", "child", "-c", "trainer", "--local").stdout
    assert f"starting at step 0 from the weights and the optimizer of {began['statePath']}" in log
    trained = status["metrics"]["heldOut"]["value"]
    assert child["metrics"]["baseline"]["value"] == pytest.approx(trained, abs=0.2), "it begins where that ended"
    on_wandb = _start_on_wandb(rlctl, "child")
    assert (on_wandb["run"], on_wandb["step"], on_wandb["state_path"]) == ("parent", 3, began["statePath"])


def _start_on_wandb(rlctl: Rlctl, name: str) -> dict[str, Any]:
    """What an offline W&B run has recorded of its start: values are JSON in its file."""
    [path] = rlctl.root.glob(f"pods/default/{name}-*-wandb/**/*.wandb")
    found = re.search(rb"start_from[^{]{1,8}(\{.*?\})", path.read_bytes(), re.DOTALL)
    assert found is not None, f"{path} says nothing of start_from"
    start: dict[str, Any] = json.loads(found[1])
    return start


def test_a_different_rank_is_refused_before_anything_starts(
    shared_rlctl: Rlctl, write_run: WriteRun, parent: dict[str, Any]
) -> None:
    file = write_run("wider", config=SHORT, trainer={"lora_rank": 4}, startFrom={"run": "parent"})
    said = "it trained with a LoRA rank of 8, and this run has 4: set spec.trainer.lora_rank to 8"
    for verb in ("validate", "run"):
        ended = shared_rlctl(verb, file, "--local")
        assert ended.returncode == 2, ended
        assert said in ended.stderr
    assert shared_rlctl.status("wider")["refusals"][0]["allowed"] == {"loraRank": 8}
