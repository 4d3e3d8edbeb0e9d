"""The bundled model trained by us and by TRL's GRPOTrainer, side by side: held-out share of right answers by sampled
tokens and by CPU seconds, on sorting and two tasks of reasoning-gym. Prints a table for each task; asserts nothing.

    python tests/benchmarks/peers_bench.py --seeds 0 1 2

peers/README.md says how to install TRL, and what differs. Each run becomes a line of the file `--results`; what stands
there is not run again, so that the benchmark can be stopped and continued.
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import torch
import yaml
from tests.benchmarks.demo_bench import PEER, PEER_PYTHON, RLCTL, ROOT
from tests.benchmarks.peers.peer_tasks import LORA_RANK, TASKS, PeerTask, bundled_model, right_share
from tests.benchmarks.peers.side_by_side import REPLACED, SIDES, Point, RunKey, SideRun, table
from tests.benchmarks.run_cpu import RunCpu

from rl_operator.local.state.locks import holder

LIMIT_SECONDS = 1800
NAME = "side-by-side"
SAMPLED = 'tinker_service_tokens_total{kind="sampled"} '


def run_file(task: PeerTask, key: RunKey, every: int) -> dict[str, Any]:
    """Our run: what TRL is given, too, is set; the rest is the runtime's and the trainer's own."""
    config = {
        **task.config,
        "total_steps": key.steps,
        "group_size": 8,
        "batch_size": 32,
        "max_token_length": task.length,
        "steps_per_eval": 0,
        "item_seed": key.seed,
        "ensure_scores_are_not_same": key.side == "ours",
    }
    trainer = {
        "learning_rate": 1e-3,
        "lora_rank": LORA_RANK,
        "max_all_right_replaced": key.replaced,
        "seed": key.seed,
        "save_checkpoint_interval": every,
        "keep_checkpoints": key.steps,
    }
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": NAME},
        "spec": {"environment": task.environment, "runtime": "tiny", "config": config, "trainer": trainer},
    }


def ours(task: PeerTask, key: RunKey, every: int, folder: Path) -> dict[str, Any]:
    """In a state folder of its own, so that it starts its own service."""
    state, file = folder / "state", folder / "run.yaml"
    file.write_text(yaml.safe_dump(run_file(task, key, every)), encoding="utf-8")
    env_vars = {**os.environ, "RL_STATE_DIR": str(state), "RL_LOG_FORMAT": "json"}
    command: list[str | Path] = [RLCTL, "run", file, "--local"]
    try:
        with (
            subprocess.Popen(command, env=env_vars, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as rlctl,
            RunCpu(str(state), {rlctl.pid: "rlctl"}) as cpu,
        ):
            before = until_sampling(state, cpu, rlctl)
            _, errors = rlctl.communicate(timeout=LIMIT_SECONDS)
        assert rlctl.returncode == 0, errors.decode()
        start_up = sum(before.values())
        by_role = {role: seconds - before[role] for role, seconds in cpu.by_role().items()}
        points = [{**point, "cpu": cpu.at(moment) - start_up} for moment, point in kept_points(state, every)]
        return {"start_up": start_up, "points": points, "by_role": by_role}
    finally:
        if service := holder(state / "tinker-service" / "running.lock"):
            os.kill(service, signal.SIGTERM)


def until_sampling(state: Path, cpu: RunCpu, rlctl: "subprocess.Popen[bytes]") -> dict[str, float]:
    """CPU seconds by role before a token was sampled: the start."""
    before = cpu.by_role()
    while rlctl.poll() is None and not has_sampled(state):
        before = cpu.by_role()
        time.sleep(0.1)
    return before


def has_sampled(state: Path) -> bool:
    try:
        port = int((state / "tinker-service" / "port").read_text(encoding="utf-8"))
        shown = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    except (OSError, ValueError, httpx.HTTPError):  # it has not started yet
        return False
    return any(float(line.removeprefix(SAMPLED)) > 0 for line in shown.splitlines() if line.startswith(SAMPLED))


def kept_points(state: Path, every: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """The steps with a checkpoint, each with the moment when its figures were logged."""
    (log,) = state.glob(f"pods/*/{NAME}-*/logs/trainer.log")
    for line in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
        figures = line.get("figures", {})
        if "time/step" in figures and figures["step"] % every == 0:
            (adapter,) = state.glob(f"tinker-service/data/*/weights/*-step-{figures['step']:06d}")
            point = {"step": figures["step"], "tokens": figures["tokens/sampled"], "adapter": str(adapter)}
            yield datetime.fromisoformat(line["time"]).timestamp(), point


def peers(key: RunKey, every: int, folder: Path) -> dict[str, Any]:
    given = {"--task": key.task, "--seed": key.seed, "--steps": key.steps, "--every": every, "--adapters": folder}
    command: list[str | Path] = [PEER_PYTHON, PEER, *map(str, itertools.chain(*given.items()))]
    env_vars = {**os.environ, "PYTHONPATH": str(ROOT / "tinker-atropos" / "src")}
    done = subprocess.run(command, env=env_vars, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def trained(key: RunKey, every: int, samples: int) -> SideRun:
    """Both sides' adapters are judged by the same sampler, apart from what the runs are charged for."""
    task = TASKS[key.task]()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        made = ours(task, key, every, where) if key.side != "TRL" else peers(key, every, where)
        points = [Point(0, 0, 0.0, untrained(key.task, samples))]
        for each in made["points"]:
            model = bundled_model(Path(each.pop("adapter")))
            points.append(Point(**each, right=right_share(task, model, samples)))
    return SideRun(key, made["start_up"], points, made.get("by_role", {}))


@cache
def untrained(task: str, samples: int) -> float:
    return right_share(TASKS[task](), bundled_model(), samples)


def kept_runs(results: Path) -> dict[RunKey, SideRun]:
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    runs = []
    for line in map(json.loads, lines):
        key, points = RunKey(**line.pop("key")), [Point(**point) for point in line.pop("points")]
        runs.append(SideRun(key=key, points=points, **line))
    return {run.key: run for run in runs}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    arguments.add_argument("--steps", type=int, default=40)
    arguments.add_argument("--every", type=int, default=5, help="steps between points of the curve")
    arguments.add_argument("--samples", type=int, default=2, help="answers to each held-out question")
    arguments.add_argument("--replaced", type=int, default=REPLACED, help="max_all_right_replaced of ours")
    arguments.add_argument("--results", type=Path, default=Path("peers-bench.jsonl"))
    given = arguments.parse_args()
    if not PEER_PYTHON.exists():
        raise SystemExit(f"{PEER_PYTHON} is not there: install TRL (tests/benchmarks/peers/README.md)")
    torch.set_num_threads(1)
    runs = kept_runs(given.results)
    asked = [
        RunKey(side, task, seed, given.steps, given.replaced if side == "ours" else REPLACED)
        for task, seed, side in itertools.product(given.tasks, given.seeds, SIDES)
    ]
    for key in asked:
        if key not in runs:
            print(f"{key.side} trains {key.task}, seed {key.seed} (load {os.getloadavg()[0]:.1f})", flush=True)
            runs[key] = trained(key, given.every, given.samples)
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(runs[key])) + "\n")
    for task in given.tasks:
        print("\n" + "\n".join(table([runs[key] for key in asked if key.task == task])))


if __name__ == "__main__":
    main()
