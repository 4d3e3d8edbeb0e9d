"""In front of the Tinker service: passes requests on, unless the file MODE says `full`, `paused`, `failing` or `slow`.

Standard library only. Slow: results are there some time after the first gradient was asked for, which writes the file
SLOW.
"""

import http.client
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE, SLOW = Path("/tmp/mode"), Path("/tmp/slow")
SLOW_SECONDS = 120
HOP = {"connection", "content-length", "date", "host", "server", "transfer-encoding"}
ACTIVE = {"type": "try_again", "queue_state": "active"}
PAUSED = {"type": "try_again", "queue_state": "paused_capacity", "queue_state_reason": "short on capacity"}
REFUSALS = {
    ("full", "create_model"): (400, {"detail": "Maximum number of LoRA adapters (6) reached"}),
    ("paused", "retrieve_future"): (408, PAUSED),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        mode, route = MODE.read_text() if MODE.exists() else "", self.path.rpartition("/")[2]
        if mode == "failing" and route != "healthz":
            self._say(500, {"detail": "boom"})
        elif refusal := REFUSALS.get((mode, route)) or ((408, ACTIVE) if self._is_awaited(route) else None):
            time.sleep(0.2)  # as long polls do, it answers a moment later
            self._say(*refusal)
        else:
            self._pass_on(body)
            if mode == "slow" and route == "forward_backward" and not SLOW.exists():
                SLOW.touch()

    def _is_awaited(self, route: str) -> bool:
        return route == "retrieve_future" and SLOW.exists() and time.time() < SLOW.stat().st_mtime + SLOW_SECONDS

    def _say(self, status: int, told: dict[str, str]) -> None:
        self._send(status, {"content-type": "application/json"}, json.dumps(told).encode())

    def _pass_on(self, body: bytes) -> None:
        connection = http.client.HTTPConnection("tinker-service", 8005, timeout=600)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        connection.request(self.command, self.path, body, kept)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self._send(answer.status, {n: v for n, v in answer.getheaders() if n.lower() not in HOP}, content)

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass

    do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 -- the library's names


class Server(ThreadingHTTPServer):
    request_queue_size = 256


if __name__ == "__main__":
    Server(("", 8005), Handler).serve_forever()
