"""What an interpreter knows of its `tinker-atropos`. Also a script, for an interpreter that is not ours: it imports
nothing but Python's own modules.
"""

import json
import sys
from importlib import metadata
from typing import Final

DISTRIBUTION: Final = "tinker-atropos"


def facts() -> dict[str, str]:
    """Its version, and the texts of `direct_url.json` and `RECORD`; empty where there is none."""
    found = metadata.distribution(DISTRIBUTION)
    texts = {name: found.read_text(name) or "" for name in ("direct_url.json", "RECORD")}
    return {"version": found.version, **texts}


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(facts()))
    except metadata.PackageNotFoundError:
        sys.exit(f"no distribution {DISTRIBUTION}")
