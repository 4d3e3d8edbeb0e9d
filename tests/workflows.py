"""Checks what GitHub reads: `make lint` runs this. Schemas are those of check-jsonschema, scripts go to shellcheck.

What expressions may name is known to actionlint, a program in Go: ci.yaml runs it.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

GITHUB = Path(".github")
BIN = Path(sys.executable).parent
SCHEMAS = {
    "vendor.github-workflows": "workflows/*.yaml",
    "custom.github-workflows-require-timeout": "workflows/*.yaml",
    "vendor.github-issue-forms": "ISSUE_TEMPLATE/*.yaml",
    "vendor.dependabot": "dependabot.yml",
}
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


def scripts(workflow: Path) -> Iterator[tuple[str, str]]:
    """Each step's, by a name for a person."""
    content: dict[str, Any] = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    for name, job in content["jobs"].items():
        for number, step in enumerate(job.get("steps", ()), 1):
            if "run" in step:
                yield f"{workflow}: job {name}, step {number}", step["run"]


def complaints(program: str, *arguments: str | Path, script: str | None = None) -> Sequence[str]:
    command = [BIN / program, *arguments]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    return [done.stdout + done.stderr] if done.returncode else []


def main() -> int:
    found: list[str] = []
    for schema, pattern in SCHEMAS.items():
        found += complaints("check-jsonschema", "--builtin-schema", schema, *sorted(GITHUB.glob(pattern)))
    found += complaints("shellcheck", ".ci/run")
    for workflow in sorted(GITHUB.glob("workflows/*.yaml")):
        for place, script in scripts(workflow):
            if EXPRESSION.search(script):
                found.append(f"{place}: an expression in a script can be code of others: pass it as a variable (env)")
            found += [f"{place}:\n{each}" for each in complaints("shellcheck", "--shell=bash", "-", script=script)]
    print("\n".join(found) or "Workflows: shapes and scripts are right")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
