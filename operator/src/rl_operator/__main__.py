"""`python -m rl_operator`: the operator process.

Exit codes: 0 stopped by a signal; 2 bad flags or kubeconfig; 3 the cluster cannot be served (not reachable, access
refused, CRDs missing, port taken); 4 the lease belongs to another process (leader_election.py); 1 anything else.
"""

import asyncio
import gc
import json
import logging
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Final

from rl_operator.api.names import MANAGER
from rl_operator.cluster.api_server.client import ClusterClient, Middlewares
from rl_operator.cluster.api_server.connection import ConnectionSettingsError, named
from rl_operator.cluster.api_server.leader_election import LeaseThread
from rl_operator.cluster.api_server.request_guard import WatchAges, counted, fenced
from rl_operator.cluster.api_server.resources import require_kinds
from rl_operator.operator_errors import OperatorError
from rl_operator.operator_settings import LogFormat, LogLevel, OperatorSettings
from rl_operator.process.operator import Operator, with_patience
from rl_operator.process.process_health import listening, metrics, probe
from rl_operator.status.text.sentences import redacted

log = logging.getLogger("rl_operator")

JSON_DEPTH: Final = 12_000
"""The API server accepts settings nested 10,000 deep. With Python's own limit, one unreadable run would make every
list fail: any user could stop the operator. Reading them takes 2 MiB of stack.
"""

SWITCH_SECONDS: Final = 0.0005
"""How long a thread may compute before another one has its turn: the loop waits that long, at each of its calls, while
a large document is checked (`reconcile/inputs.py`), and so does the thread that renews the lease.
"""

GC_THRESHOLDS: Final = (20_000, 20, 50)
"""What a reconcile allocates is freed with it and has no cycles: collecting as often as Python does by default costs
a tenth of the operator's time. What the imports allocated is not scanned again.
"""


def main() -> int:
    settings = OperatorSettings.from_command_line(sys.argv[1:])
    configure_logging(settings.log_format, settings.log_level)
    prepare_interpreter()
    code = 0
    try:
        asyncio.run(run_operator(settings))
    except* ConnectionSettingsError as errors:
        code = _explain(errors, 2)
    except* OperatorError as errors:
        code = _explain(errors, 3)
    return code


def prepare_interpreter() -> None:
    sys.setrecursionlimit(JSON_DEPTH)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _explain(errors: BaseExceptionGroup[OperatorError], code: int) -> int:
    for error in errors.exceptions:
        log.error("%s", error)
    return code


# --- connections and ports -------------------------------------------------------------------------------------------
async def run_operator(settings: OperatorSettings) -> None:
    """The whole process. Raises OperatorErrors when the cluster cannot be served."""
    place = (settings.kubeconfig, settings.context)
    ages = WatchAges(settings.stuck_seconds)
    always = (named(MANAGER), counted(ages))
    async with AsyncExitStack() as stack:
        lease: LeaseThread | None = None
        fence: Middlewares = ()
        if settings.lease_name:
            # Connections of its own: slow calls about runs must not take those that the lease needs.
            connect = partial(ClusterClient.connect, *place, settings.lease_seconds / 4, always)
            held = lease = await stack.enter_async_context(LeaseThread(settings, connect))
            fence = (fenced(lambda: held.leads),)
        calls = (*always, *fence)
        client = await stack.enter_async_context(await ClusterClient.connect(*place, settings.request_seconds, calls))
        await _serve(Operator(client, settings, ages, lease), client, settings)


async def _serve(operator: Operator, client: ClusterClient, settings: OperatorSettings) -> None:
    """Probes respond from the start, so that the process can wait for an API server that is away."""
    probes = {"/healthz": probe(operator.health.trouble), "/readyz": probe(operator.health.unready)}
    scrapes = {"/metrics": metrics(operator.refresh_metrics)}
    async with (
        listening(settings.probe_host, settings.probe_port, probes),
        listening(settings.metrics_host, settings.metrics_port, scrapes),
    ):
        await with_patience(partial(require_kinds, client), settings.connect_seconds)
        await operator.run()


# --- log lines: one JSON object each, or plain text ------------------------------------------------------------------
FRAMEWORKS = ("kopf", "aiohttp", "asyncio", "kubernetes")


class JsonLines(logging.Formatter):
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


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def configure_logging(log_format: LogFormat, level: LogLevel) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = TextLines("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in FRAMEWORKS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


if __name__ == "__main__":
    sys.exit(main())
