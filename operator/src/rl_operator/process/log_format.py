"""Log lines: one JSON object each, or plain text. Quiet: framework messages below a warning are dropped."""

import json
import logging
import sys
from datetime import UTC, datetime

from rl_operator.settings import LogFormat, LogLevel
from rl_operator.status.text.sentences import redacted

FRAMEWORKS = ("kopf", "aiohttp", "asyncio", "kubernetes")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if record.exc_info:
            line["traceback"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def configure_logging(log_format: LogFormat, level: LogLevel) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in FRAMEWORKS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
