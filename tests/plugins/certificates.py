"""Of the authorities that the world trusts, tests know one: no test leaves the machine.

Every client of HTTP that is made reads the whole list, which takes 30 milliseconds, and thousands are made.
"""

import tempfile
from pathlib import Path

import certifi
import pytest

FILE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FILE] = folder = tempfile.TemporaryDirectory()
    first = certifi.contents().partition("-----END CERTIFICATE-----")
    file = Path(folder.name) / "one.pem"
    file.write_text(f"{first[0]}{first[1]}\n", encoding="utf-8")
    certifi.where = lambda: str(file)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[FILE].cleanup()
