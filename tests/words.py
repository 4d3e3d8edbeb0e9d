"""Words that this project does not use, each with the one to use instead: `make lint` runs this.

Spelling is codespell's. This is about words that mean something else elsewhere, and unidiomatic English. Names are read
as the words that they are made of: `for_ever` and `forEver` are both "for ever".
"""

import re
import subprocess
import sys
from pathlib import Path

INSTEAD = {
    r"back[ -]ends?": "target (a cluster or this machine), or backend (the Tinker API)",
    r"premises": "inputs",
    r"desks?": "context",
    r"other hands": "drift",
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again",
    r"for ever": "forever",
    r"catalogues?": "catalog",
    r"programmes?": "program, or application",
    r"whole numbers?": "integer",
    r"(?<!there )(?:is|are|was|were) no (?:action|argument|array|distribution|finite|fraction|integer|json|library|list"
    r"|mapping|number|object|plain|regular|string|task|text|toolset|utf|virtual)s?": "is not a, or are not",
    r"(?:has|have|had)? left the numbers": "diverged",
    r"its key says": "its key shows",
    r"sits? in the seats?": "plays",
}
FILES = ("*.py", "*.md", "*.yaml", "*.yml", "*.toml", "*.html", "*.js", "*.tpl", "Makefile", ".ci/run")
NOT_OURS = ("tests/data/", "tests/words.py")
NAMES = re.compile(r"_|(?<=[a-z])(?=[A-Z])")
"""Where a name becomes words."""


def main() -> int:
    listed = subprocess.run(["git", "ls-files", *FILES], capture_output=True, text=True, check=True).stdout.split()
    words = {re.compile(rf"\b{pattern}\b", re.IGNORECASE): instead for pattern, instead in INSTEAD.items()}
    found = [
        f"{name}:{number}: {match[0]!r}: say {instead}"
        for name in listed
        if not name.startswith(NOT_OURS)
        for number, line in enumerate(NAMES.sub(" ", Path(name).read_text(encoding="utf-8")).splitlines(), 1)
        for word, instead in words.items()
        if (match := word.search(line))
    ]
    print("\n".join(found) or "Words: none that we avoid")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
