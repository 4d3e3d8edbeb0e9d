"""A trainer's ops port, as the operator sees it."""

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.integration.cluster.runs import RunsNamespace

OPS_PORT = 8002
"""The contract's port: pods are told apart by address, so each test takes another one of 127.0.0.0/8."""


@contextmanager
def trainer_status(
    runs: RunsNamespace, address: str, answer: dict[str, Any], series: Sequence[dict[str, Any]] | None = None
) -> Iterator[list[str]]:
    """Serve `answer` at /status of that loopback address, as the trainer of the newest attempt of `sorting`, and the
    points of `series` at /history. Both take the token of that attempt's pod.

    Gives the paths that were asked for so far.
    """
    bodies = {"/status": answer} | ({} if series is None else {"/history": {"points": series}})
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            whose, tokens = runs.newest_trainer()
            body = json.dumps(whose | bodies.get(path, {})).encode()
            known = path in bodies and self.headers["X-RL-Ops-Token"] in tokens
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            asked.append(path)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer((address, OPS_PORT), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
