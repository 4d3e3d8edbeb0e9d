"""What must be true of the process before atroposlib is imported: where it looks, and how much it says."""

import logging
import os
import sys
import time
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

from tinker_atropos.bundled import resolve_tokenizer

REPEAT_SECONDS = 60.0
NOISY_LOGGERS = ("atroposlib", "atroposlib.envs.base", "httpx", "openai", "aiohttp.access")
"""atroposlib.envs.base sets its own level at import, so its parent's does not count."""


def set_env_vars(urls: Iterable[str], tokenizer_name: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Keep the run's own addresses off any proxy, and a tokenizer that lies on disk off the Hub."""
    hosts = ["localhost", "127.0.0.1", *(urlsplit(url).hostname or "" for url in urls)]
    for variable in ("NO_PROXY", "no_proxy"):
        given = environ.get(variable, "").split(",")
        environ[variable] = ",".join(dict.fromkeys(host for host in [*given, *hosts] if host))
    if Path(resolve_tokenizer(tokenizer_name)).is_dir():
        environ.setdefault("HF_HUB_OFFLINE", "1")


def hide_torch() -> None:
    """Spare a process that needs no torch the import of it: transformers does that wherever torch is installed, which
    costs seconds of CPU beside a trainer that needs them.
    """
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would say that torch is missing
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # the import system's way to say "not there"


def quieten() -> None:
    """Leave warnings of atroposlib, each once a minute: it writes about ten lines a second. Call after its import."""
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatFilter())


class RepeatFilter(logging.Filter):
    """Lets one record per source line of atroposlib through per REPEAT_SECONDS: a warning per group is no news."""

    def __init__(self) -> None:
        super().__init__()
        self._last_at: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if "atroposlib" not in record.pathname and record.name != "py.warnings":
            return True
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._last_at.get(place, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._last_at[place] = now
        return True
