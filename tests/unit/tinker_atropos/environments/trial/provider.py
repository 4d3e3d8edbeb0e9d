"""An OpenAI-compatible provider over loopback, whose answers depend on the model's name."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

KEY = "sk-or-0123456789abcdef"


class ScriptedProvider:
    """`right` sorts, `wrong` does not, `half` sorts every other time; a number is the status of every answer, or of
    the first (`403 once`).
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: set[str | None] = set()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, request: dict[str, Any], key: str | None) -> tuple[int, bytes]:
        """Status and body."""
        self.paths.append(path)
        self.requests.append(request)
        self.keys.add(key)
        model, number = request["model"], len(self.requests)
        if model == "hangs":
            self._released.wait(60)
        if model.isdecimal():
            return int(model), json.dumps({"error": {"message": f"no: {key}"}}).encode()
        if model.endswith(" once") and number == 1:
            return int(model.removesuffix(" once")), b"{}"
        if model == "garbage":
            return 200, b"<html>busy</html>"
        if model == "error in 200":
            return 200, json.dumps({"error": {"message": "no endpoint has room"}}).encode()
        if model == "flaky" and number % 4 == 1:
            return 429, b"{}"
        return 200, json.dumps(self._completion(path, request, right=_is_right(model, number))).encode()

    def _completion(self, path: str, request: dict[str, Any], *, right: bool) -> dict[str, Any]:
        asked = request["messages"][-1]["content"] if "messages" in request else request["prompt"]
        said = "".join(sorted(re.findall(r"\d", asked))) if right else "I like digits"
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        if path.endswith("/chat/completions"):
            content = None if request["model"] == "thinks only" else said
            choice["message"] = {"role": "assistant", "content": content}
        else:
            choice["text"] = said
        return {"id": "1", "object": "completion", "created": 1, "model": request["model"], "choices": [choice]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                key = (self.headers["Authorization"] or "").removeprefix("Bearer ")
                status, body = provider.answer(self.path, request, key)
                self.send_response(status)
                self.send_header("Content-Type", "text/html" if body[:1] == b"<" else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Retry-After-Ms", "1")
                if 300 <= status < 400:
                    self.send_header("Location", "/v1/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler


def _is_right(model: str, number: int) -> bool:
    return model in ("right", "flaky") or (model == "half" and number % 2 == 0)
