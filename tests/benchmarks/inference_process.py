"""A trainer that serves inference, in processes of its own: it has a policy, an api, and no environment."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.tinker_process import TinkerProcess, end
from tests.ports import free_port

START_SECONDS = 60
CONFIG = {
    "env": {"total_steps": 1, "group_size": 8, "batch_size": 8, "tokenizer_name": "bundled", "max_token_length": 256},
    "openai": [{"model_name": "bundled"}],
    "tinker": {"lora_rank": 16},
}


@dataclass(frozen=True)
class InferenceProcess:
    """The trainer's process and the address of its inference server."""

    pid: int
    url: str


@contextmanager
def inference_server(service: TinkerProcess) -> Iterator[InferenceProcess]:
    """In front of the sampler of a fresh adapter, until the block ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = Path(folder, "config.yaml")
        config.write_text(json.dumps(CONFIG), encoding="utf-8")  # JSON is YAML
        api, inference = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        addresses = {"RL_API_URL": api, "RL_INFERENCE_URL": inference, "RL_OPS_HOST": "127.0.0.1"}
        env_vars = {**os.environ, **addresses, **service.env_vars()}
        started = [started_command(folder, env_vars, "api", "--data", str(Path(folder, "api")))]
        try:
            started.append(started_command(folder, env_vars, "trainer", "--config", str(config)))
            trainer, give_up = started[-1], time.monotonic() + START_SECONDS
            while not answers(f"{inference}/health"):
                alive = trainer.poll() is None and time.monotonic() < give_up
                assert alive, f"the trainer did not start: {Path(folder, 'trainer.log').read_text()[-2000:]}"
                time.sleep(0.05)
            yield InferenceProcess(trainer.pid, inference)
        finally:
            for process in reversed(started):
                end(process)


def started_command(folder: str, env_vars: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from tinker_atropos.cli import main; main()", *arguments]
    with Path(folder, f"{arguments[0]}.log").open("wb") as log:
        ops_port = {"RL_OPS_PORT": str(free_port())}
        return subprocess.Popen(command, env={**env_vars, **ops_port}, stdout=log, stderr=log, cwd=folder)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
