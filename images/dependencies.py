"""Print the dependencies of a pyproject.toml, one per line, so that an image can install them in a layer of their own.

usage: dependencies.py PYPROJECT [EXTRA]
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
extra = project.get("optional-dependencies", {})[sys.argv[2]] if len(sys.argv) > 2 else []
print("\n".join([*project["dependencies"], *extra]))  # noqa: T201 -- printing is its purpose
