"""`tinker-atropos environment NAME process` as a process, against a provider over HTTP."""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import forking
from tests.unit.tinker_atropos.environments.trial.provider import KEY, ScriptedProvider

pytestmark = pytest.mark.process

DATA = Path(__file__).parents[4] / "data" / "environments"
PROGRAM = Path(sys.executable).with_name("tinker-atropos")
ENV = {"total_steps": 3, "group_size": 4, "batch_size": 8, "tokenizer_name": "bundled", "max_token_length": 64}


@dataclass(frozen=True)
class Ended:
    """A process's exit code and output."""

    code: int
    lines: list[dict[str, Any]]
    stderr: str

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == "step"]

    @property
    def summary(self) -> dict[str, Any]:
        assert [line["event"] for line in self.lines].count("summary") == 1
        return self.lines[-1]


Command = tuple[list[str | Path], dict[str, str]]


@pytest.fixture
def trial_command(provider: ScriptedProvider, tmp_path: Path) -> Callable[..., Command]:
    """The arguments and the variables of a trial."""
    config = tmp_path / "config.yaml"

    def command(environment: str | Path, *options: str, **env: Any) -> Command:
        config.write_text(yaml.safe_dump({"env": ENV | env}))
        surroundings = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        provided = {"RL_INFERENCE_URL": provider.url, "RL_INFERENCE_API_KEY": KEY}
        words = ["environment", str(environment), "process", "--config", config, *options]
        return words, surroundings | provided

    return command


@pytest.fixture
def run_trial(trial_command: Callable[..., Command]) -> Callable[..., Ended]:
    def run(environment: str | Path, *options: str, **env: Any) -> Ended:
        words, env_vars = trial_command(environment, *options, **env)
        ended = forking.run(words, env_vars)
        assert KEY not in ended.stdout + ended.stderr
        return Ended(ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr)

    return run


def write(folder: Path, body: str) -> Path:
    head = "import os, sys, time\nfrom tinker_atropos.environments.bundled.sort_digits import SortDigits\n\n\n"
    file = folder / "mine.py"
    file.write_text(f"{head}class Mine(SortDigits):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n")
    return file


def test_steps_are_printed_as_json_and_then_their_summary(run_trial: Any) -> None:
    ended = run_trial("sort_digits", "--model", "half", "--group-size", "6", "--steps", "2")
    assert ended.code == 0, ended.stderr
    started, *steps, summary = ended.lines
    assert started == {
        "event": "started",
        "environment": "sort_digits",
        "model": "half",
        "steps_requested": 2,
        "group_size": 6,
        "limit_seconds": 600.0,
    }
    assert [(step["step"], step["completions"], step["correct"]) for step in steps] == [(1, 6, 3), (2, 6, 3)]
    assert sorted(steps[0]["scores"]) == [0.0] * 3 + [1.0] * 3
    seconds = summary.pop("seconds")
    assert seconds >= steps[0]["seconds"] + steps[1]["seconds"] > 0
    assert summary == {
        "event": "summary",
        "model": "half",
        "steps_requested": 2,
        "steps_tested": 2,
        "total_completions": 12,
        "correct_completions": 6,
        "accuracy": 0.5,
        "steps_with_correct": 2,
        "step_success_rate": 1.0,
    }


UNMODIFIED = {"plain_digits.py": 4, "plain_game.py": 8}  # the latter plays two moves, and leaves a pool of processes


@pytest.mark.parametrize(("file", "completions"), UNMODIFIED.items(), ids=UNMODIFIED)
def test_an_unmodified_file_is_tried_and_its_leftovers_end_with_it(run_trial: Any, file: str, completions: int) -> None:
    ended = run_trial(DATA / file, "--model", "right", "--steps", "1")
    assert ended.code == 0, ended.stderr
    assert ended.steps[0]["completions"] == ended.steps[0]["correct"] == completions


def test_the_key_is_not_visible_to_the_environment_or_its_processes(run_trial: Any, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        async def setup(self):
            await super().setup()
            assert "RL_INFERENCE_API_KEY" not in os.environ
            print("printed by the environment")
        """,
    )
    ended = run_trial(file, "--model", "401")
    assert ended.code == 3
    assert ended.summary["error"] == "the provider answered 401: no: [redacted]"
    assert "printed by the environment" in ended.stderr


HANGS = {
    "waits": "async def setup(self):\n    await __import__('asyncio').sleep(600)",
    "blocks the loop": "time.sleep(600)",
}


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
def test_the_limit_ends_a_hanging_environment(run_trial: Any, tmp_path: Path, hang: str) -> None:
    begun = time.monotonic()
    ended = run_trial(write(tmp_path, hang), "--model", "right", "--limit", "1")
    assert time.monotonic() - begun < 60
    assert ended.code == 4
    assert ended.summary["error"] == "not done within 1 s: the steps that were are counted"


def test_the_limit_ends_a_process_with_a_blocked_interpreter() -> None:
    program = """
        import ctypes
        from tinker_atropos.environments.trial.trial_process import end_at
        from tinker_atropos.environments.trial.trial_report import Report

        end_at(0.5, Report("m", 1, str))
        ctypes.PyDLL(None).sleep(60)
        """
    begun = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert time.monotonic() - begun < 30
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr


def test_real_start_of_a_killed_process_leaves_its_completed_steps(trial_command: Any, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        async def get_next_item(self):
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked > 1:
                time.sleep(600)
            return await super().get_next_item()
        """,
    )
    words, env_vars = trial_command(file, "--model", "right")
    with subprocess.Popen(
        [PROGRAM, *words], env=env_vars, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.kill()
        assert process.stdout.read() == ""
    assert [line["event"] for line in lines] == ["started", "step"]


REFUSED = {
    "no model": ((), "--model is missing"),
    "an unknown field": (("--model", "right"), "env.no_such_field is not a field of this environment"),
    "prompts that are none": (("--model", "right", "--prompts", "{}/config.yaml"), "cannot read the prompts"),
}


@pytest.mark.parametrize(("options", "said"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_trial_is_refused(run_trial: Any, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    ended = run_trial("sort_digits", *(each.format(tmp_path) for each in options), no_such_field=1)
    assert ended.code == 2
    assert said in ended.stderr
