"""A machine's own interpreter: with rlctl, the Tinker service, and a tinker-atropos that a folder installs.

That folder's package holds no code: it leads to the code under test and to what that needs. So a virtual environment
with it runs the real programs. As a library of environments it has `verifiers/NAME` for each module `taskset_NAME`,
which plays `sort_digits`.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.tiny_packages import make_package

PROGRAMS = {
    "rlctl": "rl_operator.cli",
    "tinker-atropos": "tinker_atropos.cli",
    "tinker-service": "tinker_service.service_command",
}
"""The module whose `main` each of them runs."""

CLI = '''
"""The real program, with a library of environments: one for each module `taskset_NAME`."""

import contextlib
import io
import json
import pkgutil
import sys

from tinker_atropos.cli import main as real_main


def main():
    names = [each.name.removeprefix("taskset_") for each in pkgutil.iter_modules() if each.name.startswith("taskset_")]
    if sys.argv[1] == "environments":
        return listed(names)
    if sys.argv[1] == "environment" and sys.argv[2].partition("/")[0] == "verifiers":
        assert sys.argv[2].partition("/")[2] in names, sys.argv
        sys.argv[2] = "sort_digits"
    return real_main()


def listed(names):
    from tinker_atropos.environments.adapters.families import installed_environments

    catalog = installed_environments().to_wire()
    [sort] = [each for each in catalog["environments"] if each["name"] == "sort_digits"]
    catalog["families"].append({"name": "verifiers", "description": "Tasksets.", "fields": sort["fields"]})
    catalog["environments"] += [
        {**sort, "name": f"verifiers/{name}", "family": "verifiers", "fields": []} for name in names
    ]
    print(json.dumps(catalog))
'''


@dataclass(frozen=True)
class Home:
    """`source` is the folder that its tinker-atropos was installed from."""

    root: Path
    source: Path

    @property
    def rlctl(self) -> Path:
        return self.root / "bin" / "rlctl"

    def says_version(self, version: str) -> None:
        """What an upgrade of tinker-atropos leaves behind."""
        [info] = self.root.glob("lib/*/site-packages/tinker_atropos-*.dist-info")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tinker-atropos\nVersion: {version}\n")


def make_home(root: Path, source: Path) -> Home:
    links = "\n".join(each for each in sys.path if each.endswith(("site-packages", "/src")))
    make_package(
        source,
        "tinker-atropos",
        {"linked_code.pth": links, "linked_cli.py": CLI},
        version="0.1.0",
        extras=["verifiers"],
        scripts={"tinker-atropos": "linked_cli:main"},
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
    [site] = root.glob("lib/*/site-packages")
    (site / "linked_code.pth").write_text(links)
    info = site / "tinker_atropos-0.1.0.dist-info"
    info.mkdir()
    (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {}}))
    (info / "RECORD").write_text("")
    home = Home(root, source)
    home.says_version("0.1.0")
    for name, module in PROGRAMS.items():
        script = root / "bin" / name
        script.write_text(f"#!{root}/bin/python\nfrom {module} import main\nmain()\n")
        script.chmod(0o755)
    return home
