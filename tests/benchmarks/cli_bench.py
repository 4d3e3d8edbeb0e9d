"""How long rlctl takes to answer, and the state folder to write. Prints a table; asserts nothing."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore

RLCTL = Path(sys.executable).with_name("rlctl")
TIMES = 9
RUNS = 100


def seconds(call: Callable[[], Any], times: int = TIMES) -> list[float]:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return sorted(taken)


def rlctl(*arguments: str, state: str) -> Callable[[], Any]:
    env_vars = {**os.environ, "RL_STATE_DIR": state}
    return lambda: subprocess.run([RLCTL, *arguments], env=env_vars, capture_output=True, check=True)


def finished_run(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"namespace": "default", "name": f"run-{number}"},
        "spec": {"environment": "sort_digits", "runtime": "tiny"},
        "status": {"phase": "Succeeded", "progress": {"step": 40, "totalSteps": 40, "percent": 100}},
    }


def row(what: str, goal: str, taken: list[float], unit: float = 1.0, name: str = "s") -> None:
    median, worst = statistics.median(taken) / unit, taken[-1] / unit
    print(f"{what:<44} {goal:>10} {median:>9.2f} {worst:>9.2f} {name}")


def main() -> None:
    print(f"{'what':<44} {'goal':>10} {'median':>9} {'worst':>9}")
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as full:
        row("rlctl --help", "<= 0.4", seconds(rlctl("--help", state=empty)))
        row("rlctl list --local, no run", "<= 0.6", seconds(rlctl("list", "--local", state=empty)))
        store = StateStore(Layout(Path(full)))
        for number in range(RUNS):
            store.create(finished_run(number))
        row(f"rlctl list --local, {RUNS} runs", "<= 0.6", seconds(rlctl("list", "--local", state=full)))
        row("rlctl get --local", "", seconds(rlctl("get", "run-1", "--local", state=full)))
        write = seconds(lambda: store.update("RLTrainingRun", "default", "run-1", _count), times=200)
        row("one status write", "", write, unit=1e-3, name="ms")


def _count(manifest: dict[str, Any]) -> None:
    manifest["status"]["progress"]["step"] += 1


if __name__ == "__main__":
    main()
