"""Install packages into this interpreter's environment: `python installer.py [--torch] ARGUMENTS OF pip install`.

uv does it in a tenth of pip's time. It is used if pip can install it, and if all that pip is configured with has a
counterpart: a company's index, certificate or constraints hold either way. Otherwise pip does it. `--torch` installs a
CPU build of torch first.
"""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TORCH = Path(__file__).parent / "install_torch.py"
UV = "uv>=0.9,<1"
PIP = "pip>=25.1"
"""The first one with `--group`; what comes with Python may be older."""

COUNTERPARTS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
"""For a setting of pip: uv's variable, and what separates several values in it."""

WITHOUT_EFFECT = {
    *("default-timeout", "timeout", "retries", "disable-pip-version-check", "no-warn-script-location", "no-compile"),
    *("quiet", "verbose", "no-color", "progress-bar", "no-input", "require-virtualenv", "root-user-action"),
}
"""Settings that do not change what is installed."""


def uv_variables(settings: Mapping[str, str]) -> dict[str, str] | None:
    """What uv is told of pip's settings; None if one of them has no counterpart."""
    found = {}
    for name, value in settings.items():
        if name in COUNTERPARTS:
            variable, separator = COUNTERPARTS[name]
            found[variable] = separator.join(value.split())
        elif name not in WITHOUT_EFFECT:
            return None
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # to pip all indexes are equal
    return found


def read_settings(listed: str) -> dict[str, str]:
    """An install's settings, from `pip config list`: variables hold over files, `install` over `global`."""
    settings = {}
    for section in ("global", "install", ":env:"):
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", listed, re.MULTILINE):
            settings[name] = str(ast.literal_eval(value))
    return settings


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
