"""A file after hermes-agent's guide makes data and evaluates a provider's model, by its own commands."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tinker_atropos.environments.trial.provider import ScriptedProvider

KEY = "sk-not-to-be-seen"
FILE = Path(__file__).parents[3] / "data" / "environments" / "guide_env.py"


class Writer(ScriptedProvider):
    """A provider whose model writes the file that it is asked for; at a temperature every other one wrongly."""

    def _completion(self, path: str, request: dict[str, Any], *, right: bool) -> dict[str, Any]:  # noqa: ARG002 -- see above
        assert path.endswith("/chat/completions")
        message: dict[str, Any] = {"role": "assistant", "content": "Done."}
        if asked := re.search(r"text '(.*)' to the file (\S+)\.$", request["messages"][-1]["content"]):
            wrong = request["temperature"] > 0 and len(self.requests) % 2 == 0
            arguments = json.dumps({"path": asked[2], "content": asked[1] + "?" * wrong})
            function = {"name": "write_file", "arguments": arguments}
            message = {
                **message,
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
            }
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return {"id": "1", "object": "chat.completion", "created": 1, "model": request["model"], "choices": [choice]}


@pytest.fixture(scope="module")
def writer() -> Iterator[Writer]:
    with Writer() as provider:
        yield provider


def run_mode(mode: str, url: str, folder: Path, *options: str) -> str:
    """What it printed, without the provider's key. There is no W&B key, and nobody to type one."""
    server = [f"--openai.base_url={url}", "--openai.server_type=openai", "--openai.model_name=m"]
    env_vars = {name: text for name, text in os.environ.items() if not name.startswith("WANDB")}
    env_vars |= {"NO_PROXY": "*", "OPENROUTER_API_KEY": KEY}
    done = subprocess.run(
        [sys.executable, FILE, mode, *server, *options],
        cwd=folder, env=env_vars | {"HOME": str(folder)}, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.process
def test_process_writes_groups_and_a_page(writer: Writer, tmp_path: Path) -> None:
    """The command line overrides the YAML file, which overrides `config_init`."""
    (tmp_path / "c.yaml").write_text("env: {total_steps: 9, group_size: 4, system_prompt: Be quick.}")
    run_mode("process", writer.url, tmp_path, "--config=c.yaml", "--env.total_steps=2")
    groups = [json.loads(line) for line in (tmp_path / "data" / "file-task.jsonl").read_text().splitlines()]
    assert [len(group["scores"]) for group in groups] == [4, 4]
    assert {score for group in groups for score in group["scores"]} <= {1.0, 0.4}
    messages = groups[0]["messages"][0]
    assert messages[0] == {"role": "system", "content": "Be quick."}
    assert [each["role"] for each in messages[2:]] == ["assistant", "tool", "assistant"]
    assert messages[2]["tool_calls"][0]["function"]["name"] == "write_file"
    assert all(any(mask != -100 for mask in masks) for group in groups for masks in group["masks"])
    page = (tmp_path / "data" / "file-task.html").read_text()
    assert "2 groups, 8 rollouts" in page
    assert writer.keys == {KEY}
    assert "<strong>write_file</strong>" in page


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments")
@pytest.mark.process
def test_evaluate_writes_results_at_temperature_0(writer: Writer, tmp_path: Path) -> None:
    before = len(writer.requests)
    printed = run_mode("evaluate", writer.url, tmp_path, "--env.eval_size=3")
    assert {request["temperature"] for request in writer.requests[before:]} == {0.0}
    assert "eval_results/file-task" in printed
    results = json.loads((tmp_path / "eval_results" / "file-task" / "metrics.json").read_text())
    assert results["results"]["all"]["eval/mean_reward"] == 1.0
    samples = (tmp_path / "eval_results" / "file-task" / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["turns"] for line in samples] == [2, 2, 2]
