"""`make demo`, warm: from the command to trained weights, split at the moments that a user sees. Asserts nothing.

Then its training part alone (no evaluations), with 4 and with 8 groups of 8 rollouts: seconds, sampled tokens per
second, the trainer's own share of a step, and CPU seconds of each process from its start, which neighbors lengthen
less than the clock; next to TRL's GRPOTrainer on the same model and task, if TRL is there: peers/README.md.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.benchmarks.run_cpu import RunCpu

from rl_operator.local.state.locks import holder

RLCTL = Path(sys.executable).with_name("rlctl")
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sorting.yaml"
PEER = Path(__file__).parent / "peers" / "trl_grpo.py"
PEER_PYTHON = Path(os.environ.get("TRL_PYTHON", PEER.parent / ".venv" / "bin" / "python"))
PEER_SECONDS = 300
MOMENTS = {
    "containers started": "Starting  Waiting for trainer",
    "trainer ready": "Starting  Waiting for environment",
    "baseline evaluated, first group accepted": "Running ",
    "first step": "Running   step 1/",
    "half of the steps": "Running   step 20/",
}
PARTS = ("waiting", "forward_backward", "optim_step", "snapshot", "saving", "preparing", "reporting")


def follow(file: Path, state: str, moments: Mapping[str, str]) -> list[str]:
    """Run a file to its end; prints when the moments come. Returns the last lines."""
    env_vars = {**os.environ, "RL_STATE_DIR": state, "RL_LOG_FORMAT": "json"}
    begun, waiting, last_lines = time.perf_counter(), dict(moments), list[str]()
    with subprocess.Popen(
        [RLCTL, "run", file, "--local"],
        env=env_vars,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            last_lines = [*last_lines[-9:], line]
            for moment in [m for m, start in waiting.items() if line.startswith(start)]:
                del waiting[moment]
                print(f"{moment:<44} {time.perf_counter() - begun:8.1f} s")
    if moments:
        print(f"{'the whole demo, warm (goal <= 20)':<44} {time.perf_counter() - begun:8.1f} s")
    return last_lines


def steps_of(state: str, name: str) -> list[dict[str, float]]:
    """The metrics of every step, from the trainer's log."""
    (log,) = Path(state).glob(f"pods/*/{name}-*/logs/trainer.log")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [line["figures"] for line in lines if "time/step" in line.get("figures", {})]


def show_steps(steps: list[dict[str, float]]) -> None:
    """The first lap waits for what starts beside the trainer, and for the first evaluation: it does not count."""
    laps = steps[1:]
    whole = sum(lap["time/step"] for lap in laps)
    own = sum(lap["time/own_share"] * lap["time/step"] for lap in laps) / whole
    sampled = laps[-1]["tokens/sampled"] - steps[0]["tokens/sampled"]
    print(f"{'training part, ' + str(len(laps)) + ' steps (goal <= 6)':<44} {whole:8.1f} s")
    for part in PARTS:
        print(f"  {part:<42} {sum(lap[f'time/{part}'] for lap in laps):8.2f} s")
    print(f"{'sampled tokens/s (goal: those of TRL)':<44} {sampled / whole:8.0f}")
    print(f"{'own share of a step (goal <= 2 %)':<44} {own:8.1%}")


def show_cpu(cpu: RunCpu) -> None:
    seconds = cpu.by_role()
    parts = ", ".join(f"{role} {each:.1f}" for role, each in seconds.items())
    print(f"CPU seconds: {sum(seconds.values()):.1f} ({parts})\n")


def without_evaluations(folder: str, groups: int) -> Path:
    """The example with so many groups per step, and only its training part."""
    run: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    run["metadata"]["name"] = f"sorting-{groups}-groups"
    run["spec"]["config"] |= {"steps_per_eval": 0, "batch_size": groups * run["spec"]["config"]["group_size"]}
    path = Path(folder) / f"{groups}.yaml"
    path.write_text(yaml.safe_dump(run), encoding="utf-8")
    return path


def measure(file: Path, moments: Mapping[str, str]) -> None:
    """In a state folder of its own, so that each run starts its own service."""
    name = yaml.safe_load(file.read_text(encoding="utf-8"))["metadata"]["name"]
    with tempfile.TemporaryDirectory() as state:
        try:
            with RunCpu(state) as cpu:
                last_lines = follow(file, state, moments)
            if moments:
                print("".join(last_lines))
            show_steps(steps_of(state, name))
            show_cpu(cpu)
        finally:
            if service := holder(Path(state) / "tinker-service" / "running.lock"):
                os.kill(service, signal.SIGTERM)


def show_peer() -> None:
    """40 steps of 32 rollouts."""
    if not PEER_PYTHON.exists():
        print("TRL's GRPOTrainer: not installed (tests/benchmarks/peers/README.md); 4.1 and 4.5 s on two idle cores\n")
        return
    paths = {"PYTHONPATH": str(ROOT / "tinker-atropos" / "src")}
    out = subprocess.run(
        [PEER_PYTHON, PEER], env={**os.environ, **paths}, capture_output=True, text=True, timeout=PEER_SECONDS,
        check=True,
    ).stdout  # fmt: skip
    peer = json.loads(out.strip().splitlines()[-1])
    print(f"{'TRL GRPOTrainer, 40 steps of 32 rollouts':<44} {peer['seconds']:8.1f} s")
    print(f"{'sampled tokens/s':<44} {peer['tokens'] / peer['seconds']:8.0f}")
    print(f"CPU seconds: {peer['cpu']:.1f}; held-out before {peer['before']:.3f}, after {peer['after']:.3f}\n")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--groups", type=int, nargs="*", default=[4, 8], help="of the training parts; none: only the demo"
    )
    groups = arguments.parse_args().groups
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    measure(EXAMPLE, MOMENTS)
    for count in groups:
        print(f"without evaluations, {count} groups of 8 rollouts (load {os.getloadavg()[0]:.1f})")
        with tempfile.TemporaryDirectory() as folder:
            measure(without_evaluations(folder, count), {})
    show_peer()


if __name__ == "__main__":
    main()
