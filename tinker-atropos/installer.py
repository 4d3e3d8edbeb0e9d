"""Install packages into this interpreter's environment: `python installer.py [--torch] ARGUMENTS OF pip install`.

uv does it in a tenth of pip's time. It is used if pip can install it, and if all that pip is configured with has a
counterpart: a company's index, certificate or constraints hold either way. Otherwise pip does it. `--torch` installs a
CPU build of torch first.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "operator" / "src"))  # nothing is installed yet

from rl_operator.pip_settings import read_settings, uv_variables

TORCH = Path(__file__).parent / "install_torch.py"
UV = "uv>=0.9,<1"
PIP = "pip>=25.1"
"""The first one with `--group`; what comes with Python may be older."""


def install(arguments: list[str]) -> bool:
    wanted = [each for each in arguments if each != "--torch"]
    torch = len(wanted) < len(arguments)
    config = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(config, check=True, capture_output=True, text=True)
    variables = uv_variables(read_settings(listed.stdout))
    if variables is not None and _uv_is_there():
        if _install_with("uv pip", wanted, {**os.environ, **variables}, torch=torch):
            return True
        print("uv could not install it; now pip tries", file=sys.stderr)
    return _run("pip", "install", "--quiet", "--upgrade", PIP) and _install_with("pip", wanted, os.environ, torch=torch)


def _uv_is_there() -> bool:
    return bool(importlib.util.find_spec("uv")) or _run("pip", "install", "--quiet", "--only-binary", ":all:", UV)


def _install_with(installer: str, wanted: list[str], env_vars: Mapping[str, str], *, torch: bool) -> bool:
    if torch:
        done = subprocess.run([sys.executable, TORCH], check=False, env={**env_vars, "INSTALLER": installer})
        if done.returncode:
            return False
    return _run(*installer.split(), "install", "--quiet", *wanted, env_vars=env_vars)


def _run(*arguments: str, env_vars: Mapping[str, str] = os.environ) -> bool:
    return not subprocess.run([sys.executable, "-m", *arguments], check=False, env=env_vars).returncode


if __name__ == "__main__":
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    sys.exit(not install(sys.argv[1:]))
