"""Log lines on stderr: text for people, or one JSON object each for machines (`--log-format json`, RL_LOG_FORMAT).

A record's `figures` (`extra={"figures": {...}}`) become fields of the JSON object; the text has its own wording.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, cast

from rl_contract.env_vars import RL_LOG_FORMAT

LogFormat = Literal["text", "json"]

TEXT = "%(asctime)s %(levelname)s %(message)s"

logger = logging.getLogger(__name__)


class JsonFormatter(logging.Formatter):
    """`time` (RFC 3339, UTC), `level`, `logger`, `message`, and `figures` and `traceback` where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if figures := getattr(record, "figures", None):
            line["figures"] = figures
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_format_of(environ: Mapping[str, str] = os.environ) -> LogFormat:
    return cast("LogFormat", environ.get(RL_LOG_FORMAT, "text"))


def configure_logging(log_format: LogFormat) -> None:
    """Set up the process's logging; the processes that it starts write in the same format."""
    os.environ[RL_LOG_FORMAT] = log_format
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    if log_format == "json":
        logging.captureWarnings(capture=True)
        sys.excepthook = _log_uncaught


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logger.critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace))
