"""Process setup before atroposlib is imported: environment variables, log levels and seeds."""

import logging
import os
import random
import sys
import time
from collections.abc import Iterable, MutableMapping
from urllib.parse import urlsplit

import numpy as np

REPEAT_SECONDS = 60.0
MAX_REMEMBERED = 1_000
NOISY_LOGGERS = ("atroposlib", "httpx", "httpx2", "openai")


def bypass_proxies(urls: Iterable[str], environ: MutableMapping[str, str] = os.environ) -> None:
    """Exclude the run's own addresses from any proxy.

    Nothing here makes libraries offline, even where the tokenizer is a folder (which transformers never looks up): the
    environment's data sets may be on the Hub.
    """
    hosts = ["localhost", "127.0.0.1", *(urlsplit(url).hostname or "" for url in urls)]
    for variable in ("NO_PROXY", "no_proxy"):
        given = environ.get(variable, "").split(",")
        environ[variable] = ",".join(dict.fromkeys(host for host in [*given, *hosts] if host))


def seed_generators(seed: int) -> None:
    """Those that environments draw from without one of their own. Torch is not imported for it."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 -- see above
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def quieten() -> None:
    """Let libraries log only warnings and errors, and suppress repeated messages."""
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatFilter())


def quieten_atroposlib() -> None:
    """Its base module logs about ten lines a second, and sets its own level when imported."""
    logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)


class RepeatFilter(logging.Filter):
    """Passes the same message from the same line once per REPEAT_SECONDS."""

    def __init__(self) -> None:
        super().__init__()
        self._last_at: dict[tuple[str, int, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        said, now = (record.pathname, record.lineno, record.getMessage()), time.monotonic()
        if now - self._last_at.get(said, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        if len(self._last_at) >= MAX_REMEMBERED:
            self._last_at.clear()
        self._last_at[said] = now
        return True
