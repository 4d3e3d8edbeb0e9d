"""The whole algorithm in one file learns, against the service that the examples name."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from tinker_atropos.trainer.backend.lora_weights import ADAM_BETA1, ADAM_BETA2, ADAM_EPS

SCRIPT = Path("examples/rl_loop.py")
MOST_LINES = 150
WAIT = 120


def test_it_is_short() -> None:
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_its_optimizer_is_the_trainers() -> None:
    loop = runpy.run_path(str(SCRIPT))
    training = Mock()
    loop["update"](training, [[loop["Rollout"]([1, 2], [3], [-0.5], 1.0, advantage=0.5)]])
    (adam,) = training.optim_step.call_args.args
    assert (adam.beta1, adam.beta2, adam.eps) == (ADAM_BETA1, ADAM_BETA2, ADAM_EPS)


@pytest.mark.nightly("examples/rl_loop.py", "tinker-atropos/tinker-service/src/tinker_service")
def test_it_learns(tinker_service) -> None:
    """0.52 to 0.59 before, 0.78 to 0.84 after twelve steps."""
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", str(SCRIPT), "12"],
        env={**os.environ, **tinker_service.env_vars},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    before, after = (float(accuracy) for accuracy in re.findall(r"^accuracy \w+: ([\d.]+)$", done.stdout, re.MULTILINE))
    assert len(re.findall(r"^step +\d+: reward [\d.]+$", done.stdout, re.MULTILINE)) == 12
    assert after > before + 0.1, done.stdout
