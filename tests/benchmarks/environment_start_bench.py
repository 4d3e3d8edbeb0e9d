"""From the start of an environment's process to its first group, by kind.

`python -m tests.benchmarks.environment_start_bench`:
Real runs of local mode, one after another beside one warm Tinker service. Each kind runs twice: the second time, files
and bytecode are in the page cache. Prints a table; asserts nothing.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from tests.benchmarks.demo_bench import RLCTL, ROOT
from tests.tasksets import EXAMPLE

from rl_operator.local.state.locks import holder

SERVER = ROOT / "tests" / "data" / "programs" / "openenv_server.py"
CONFIG = {"total_steps": 1, "steps_per_eval": 0, "group_size": 8, "batch_size": 32}
ANY_GROUP = {"ensure_scores_are_not_same": False}
"""The first group counts, whatever it is worth."""

KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "bundled": ("sort_digits", {}, None),
    "reasoning-gym": (
        "reasoning-gym/spell_backward",
        {"min_word_len": 3, "max_word_len": 4, "system_prompt": "direct", "max_token_length": 160},
        None,
    ),
    "openenv": (
        "own/openenv",
        {"system_prompt": "", "max_turns": 1, "max_token_length": 64},
        {"command": [sys.executable, str(SERVER), "plain"], "maxSessions": 64},
    ),
    "verifiers": ("verifiers/sort_digits_vf", {"max_token_length": 32}, None),
}
"""By name: spec.environment, its config, and the OpenEnv server of the RLEnvironment of that name."""

ROW = "{:<16}{:>14}{:>14}"


def documents(name: str, kind: str) -> list[dict[str, Any]]:
    environment, config, server = KINDS[kind]
    head = {"apiVersion": "rl-operator.dev/v1alpha1"}
    spec = {"environment": environment, "runtime": "tiny", "config": CONFIG | ANY_GROUP | config}
    run = {**head, "kind": "RLTrainingRun", "metadata": {"name": name}, "spec": spec}
    if server is None:
        return [run]
    return [{**head, "kind": "RLEnvironment", "metadata": {"name": kind}, "spec": {"openenv": server}}, run]


def install_tasksets(state: Path) -> None:
    """verifiers, and the example's taskset."""
    call: list[str | Path] = [RLCTL, "environments", "install", "verifiers", EXAMPLE]
    subprocess.run(call, env={**os.environ, "RL_STATE_DIR": str(state)}, stdout=subprocess.DEVNULL, check=True)


def seconds_to_first_group(state: Path, kind: str, number: int) -> float:
    """Of one whole run. The journal has when a group came, and a container's lock is made when it starts."""
    name = f"{kind}-{number}"
    file = state / f"{name}.yaml"
    file.write_text(yaml.safe_dump_all(documents(name, kind)), encoding="utf-8")
    env_vars = {**os.environ, "RL_STATE_DIR": str(state)}
    subprocess.run([RLCTL, "run", file, "--local"], env=env_vars, stdout=subprocess.DEVNULL, check=True)
    (journal_file,) = state.glob(f"pods/*/{name}-*/volumes/journal/journal.sqlite")
    (lock,) = state.glob(f"pods/*/{name}-*/running/environment.lock")
    with contextlib.closing(sqlite3.connect(journal_file)) as journal:
        ((first,),) = journal.execute("SELECT min(received_at) FROM receipts").fetchall()
    return float(first) - lock.stat().st_mtime


def main() -> None:
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; goal: at most 6 s the second time")
    print(ROW.format("kind", "first time", "second time"))
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        try:
            install_tasksets(state)
            seconds_to_first_group(state, "bundled", 0)  # starts the service
            for kind in KINDS:
                first, second = (seconds_to_first_group(state, kind, number) for number in (1, 2))
                print(ROW.format(kind, f"{first:.1f} s", f"{second:.1f} s"), flush=True)
        finally:
            if service := holder(state / "tinker-service" / "running.lock"):
                os.kill(service, signal.SIGTERM)


if __name__ == "__main__":
    main()
