"""Install a CPU build of torch into this interpreter, whatever the machine can reach.

Tried in turn: a wheel that pip knows locally (find-links), PyTorch's CPU index on Linux (plain PyPI would bring the
CUDA build, 5 GB installed), and what pip has. By pip: uv takes the CUDA build of an index for newer than a local CPU
build. An index that cannot be reached costs seconds and is not an error.
"""

import importlib.util
import os
import subprocess
import sys
import urllib.error
import urllib.request

VERSION = "2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROBE_SECONDS = 5


def pip_install(*arguments: str) -> bool:
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    return subprocess.run(command, check=False).returncode == 0  # noqa: S603 -- our own interpreter's pip


def reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/torch/", timeout=PROBE_SECONDS):  # noqa: S310 -- a constant https URL
            return True
    except (urllib.error.URLError, TimeoutError, OSError):
        return False


def main() -> int:
    if importlib.util.find_spec("torch"):
        return 0
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    probe = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--no-index"]
    local = subprocess.run([*probe, f"torch=={VERSION}"], check=False, capture_output=True)  # noqa: S603 -- as above
    if local.returncode == 0 and pip_install("--no-index", "--no-deps", f"torch=={VERSION}"):
        return 0
    if sys.platform == "linux" and reachable(CPU_INDEX) and pip_install(f"torch=={VERSION}", "--index-url", CPU_INDEX):
        return 0
    return 0 if pip_install("torch>=2.10,<3") else 1


if __name__ == "__main__":
    sys.exit(main())
