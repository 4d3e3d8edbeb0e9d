"""`make demo`, warm: from the command to trained weights, split at the moments that a user sees. Asserts nothing.

Then its training part alone (40 steps of 32 rollouts, no evaluations), from the moment that the trainer is ready to the
last step, next to TRL's GRPOTrainer on the same model and task, if TRL is there: peers/README.md.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.meter import cpu_seconds

from rl_operator.local.state.locks import holder

RLCTL = Path(sys.executable).with_name("rlctl")
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sorting.yaml"
PEER = Path(__file__).parent / "peers" / "trl_sorting.py"
PEER_PYTHON = Path(os.environ.get("TRL_PYTHON", PEER.parent / ".venv" / "bin" / "python"))
PEER_SECONDS = 300
RUN_SECONDS = 600
POLL_SECONDS = 0.02
MOMENTS = {
    "containers started": "Starting  Waiting for trainer",
    "trainer ready": "Starting  Waiting for environment",
    "baseline evaluated, first group accepted": "Running ",
    "first step": "Running   step 1/",
    "half of the steps": "Running   step 20/",
}
BEGIN, END = "INFO ready: ", "INFO training is done"
"""In the trainer's log."""


@dataclass(frozen=True)
class Training:
    """Seconds by the clock, CPU seconds of each process, tokens sampled, and held-out accuracy if it was measured."""

    seconds: float
    cpu: dict[str, float]
    tokens: int
    accuracy: str = ""


def main() -> None:
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with state_folder() as state:
        whole_demo(state)
    peer = peer_training()
    ours = own_training()
    show("the training part: 40 steps of 32 rollouts", ours, "<= 6 s, and at least TRL's tokens/s")
    if peer:
        show("TRL's GRPOTrainer", peer, "")
    else:
        print("TRL's GRPOTrainer: not installed (tests/benchmarks/peers/README.md); 4.1 and 4.5 s on two idle cores")


def show(name: str, training: Training, goal: str) -> None:
    cpu = ", ".join(f"{part} {seconds:.1f}" for part, seconds in training.cpu.items())
    print(f"{name:<44} {training.seconds:8.1f} s   {goal}")
    print(f"  CPU seconds: {cpu}")
    print(f"  {training.tokens} tokens sampled, {training.tokens / training.seconds:.0f} per second")
    if training.accuracy:
        print(f"  held-out {training.accuracy}")


def whole_demo(state: Path) -> None:
    begun = time.perf_counter()
    with subprocess.Popen(command(EXAMPLE), env=env_vars(state), stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        waiting = dict(MOMENTS)
        last_lines: list[str] = []
        for line in demo.stdout:
            last_lines = [*last_lines[-9:], line]
            for moment in [m for m, start in waiting.items() if line.startswith(start)]:
                del waiting[moment]
                print(f"{moment:<44} {time.perf_counter() - begun:8.1f} s")
    print(f"{'the whole demo, warm (goal <= 20)':<44} {time.perf_counter() - begun:8.1f} s")
    print("".join(last_lines))


def own_training() -> Training:
    """The demo's run again, without evaluations."""
    with state_folder() as state:
        run = state / "run.yaml"
        text, count = re.subn(r"(\n +)(batch_size: 32)", r"\1\2\1steps_per_eval: 0 #", EXAMPLE.read_text(), count=1)
        assert count
        run.write_text(text)
        clock = TrainerClock(state)
        subprocess.run(command(run), env=env_vars(state), stdout=subprocess.DEVNULL, timeout=RUN_SECONDS, check=True)
        return clock.training()


class TrainerClock:
    """Reads the trainer's log while a run goes on: what had been used when training began, and when it ended."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._moments: list[tuple[float, dict[str, float]]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def training(self) -> Training:
        """After the run."""
        self._thread.join(1)
        assert not self._thread.is_alive(), "the trainer did not say when it began and ended"
        (began, before), (ended, after) = self._moments
        cpu = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
        return Training(ended - began, cpu, sampled_tokens(self._state))

    def _watch(self) -> None:
        for line in (BEGIN, END):
            while not any(line in log.read_text() for log in self._state.glob("pods/*/*/logs/trainer.log")):
                time.sleep(POLL_SECONDS)
            self._moments.append((time.monotonic(), self._used()))

    def _used(self) -> dict[str, float]:
        """CPU seconds so far, by process: the locks hold the process ids."""
        locks = [*self._state.glob("pods/*/*/running/*.lock"), service_lock(self._state)]
        names = ["tinker-service" if lock == service_lock(self._state) else lock.stem for lock in locks]
        pids = [holder(lock) for lock in locks]
        return {name: with_children(pid) for name, pid in zip(names, pids, strict=True) if pid}


def with_children(pid: int) -> float:
    """CPU seconds of a process and of those that it started: the api's worker is one."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return cpu_seconds(pid) + sum(map(cpu_seconds, children))


def sampled_tokens(state: Path) -> int:
    port = (state / "tinker-service" / "port").read_text().strip()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        found = re.search(r'tinker_service_tokens_total\{kind="sampled"\} ([0-9.e+]+)', answer.read().decode())
    assert found
    return int(float(found[1]))


def peer_training() -> Training | None:
    if not PEER_PYTHON.exists():
        return None
    paths = {"PYTHONPATH": str(ROOT / "tinker-atropos" / "src")}
    out = subprocess.run(
        [PEER_PYTHON, PEER], env={**os.environ, **paths}, capture_output=True, text=True, timeout=PEER_SECONDS,
        check=True,
    ).stdout  # fmt: skip
    figures = json.loads(out.strip().splitlines()[-1])
    accuracy = f"before {figures['before']:.3f}, after {figures['after']:.3f}"
    return Training(figures["seconds"], {"the process": figures["cpu"]}, figures["tokens"], accuracy)


def command(run: Path) -> list[str]:
    return [str(RLCTL), "run", str(run), "--local"]


def env_vars(state: Path) -> dict[str, str]:
    return {**os.environ, "RL_STATE_DIR": str(state)}


@contextmanager
def state_folder() -> Iterator[Path]:
    """The Tinker service that runs in it is ended at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            if service := holder(service_lock(Path(folder))):
                os.kill(service, signal.SIGTERM)


def service_lock(state: Path) -> Path:
    return state / "tinker-service" / "running.lock"


if __name__ == "__main__":
    main()
