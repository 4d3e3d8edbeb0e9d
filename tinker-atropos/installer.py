"""Install packages into this interpreter's environment: `python installer.py ARGUMENTS OF uv pip install`.

pip only installs uv, which does the rest in a tenth of its time. uv does not read pip's configuration, so it is told of
the indexes and the certificate there: what a machine is set up with needs no second configuration. UV_… variables win.
"""

import ast
import importlib.util
import os
import re
import subprocess
import sys

UV = "uv>=0.9,<1"
COUNTERPARTS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
"""For a setting of pip: uv's variable, and what separates several values in it."""


def main(arguments: list[str]) -> int:
    if not importlib.util.find_spec("uv") and _run("pip", "install", "--quiet", "--only-binary", ":all:", UV):
        print(
            f"pip could not install uv, which installs everything else: try `{sys.executable} -m pip install '{UV}'`, "
            "and see `pip config list` for the index that pip uses",
            file=sys.stderr,
        )
        return 1
    return _run("uv", "pip", "install", "--quiet", *arguments, **{**_pip_settings(), **os.environ})


def _run(*arguments: str, **env_vars: str) -> int:
    return subprocess.run([sys.executable, "-m", *arguments], check=False, env=env_vars or None).returncode


def _pip_settings() -> dict[str, str]:
    """As uv's variables: pip's variables hold over its files, `install` over `global`."""
    config = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(config, check=True, capture_output=True, text=True).stdout
    found = {}
    for section in ("global", "install", ":env:"):
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", listed, re.MULTILINE):
            if name in COUNTERPARTS:
                variable, separator = COUNTERPARTS[name]
                found[variable] = separator.join(str(ast.literal_eval(value)).split())
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # to pip all indexes are equal
    return found


if __name__ == "__main__":
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    sys.exit(main(sys.argv[1:]))
