"""Log lines: one JSON object each, or plain text. Quiet: framework messages below a warning are dropped."""

import json
import logging
import sys
from datetime import UTC, datetime

from rl_operator.settings import LogFormat, LogLevel

FRAMEWORKS = ("kopf", "aiohttp", "asyncio", "kubernetes")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(log_format: LogFormat, level: LogLevel) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in FRAMEWORKS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
