"""`make demo`, warm: from the command to trained weights, split at the moments that a user sees. Asserts nothing."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rl_operator.local.state.locks import holder

RLCTL = Path(sys.executable).with_name("rlctl")
EXAMPLE = Path(__file__).parents[2] / "examples" / "sorting.yaml"
MOMENTS = {
    "containers started": "Starting  Waiting for trainer",
    "trainer ready": "Starting  Waiting for environment",
    "baseline evaluated, first group accepted": "Running ",
    "first step": "Running   step 1/",
    "half of the steps": "Running   step 20/",
}


def main() -> None:
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as state:
        env_vars = {**os.environ, "RL_STATE_DIR": state}
        begun = time.perf_counter()
        command = [str(RLCTL), "run", str(EXAMPLE), "--local"]
        with subprocess.Popen(command, env=env_vars, stdout=subprocess.PIPE, text=True) as demo:
            assert demo.stdout is not None
            waiting = dict(MOMENTS)
            last_lines: list[str] = []
            for line in demo.stdout:
                last_lines = [*last_lines[-9:], line]
                for moment in [m for m, start in waiting.items() if line.startswith(start)]:
                    del waiting[moment]
                    print(f"{moment:<44} {time.perf_counter() - begun:8.1f} s")
        print(f"{'the whole demo, warm (goal <= 45)':<44} {time.perf_counter() - begun:8.1f} s")
        print("".join(last_lines))
        if service := holder(Path(state) / "tinker-service" / "running.lock"):
            os.kill(service, signal.SIGTERM)


if __name__ == "__main__":
    main()
