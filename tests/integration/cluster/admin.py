"""A small separate client for the tests: the tested code must not judge itself."""

import http.client
import json
import ssl
import time
from typing import Any
from urllib.parse import urlencode

RUNS = "/apis/rl-operator.dev/v1alpha1/namespaces/{namespace}/rltrainingruns"
ENVIRONMENTS = "/apis/rl-operator.dev/v1alpha1/namespaces/{namespace}/rlenvironments"
RUNTIMES = "/apis/rl-operator.dev/v1alpha1/rlruntimes"

MERGE_PATCH = "application/merge-patch+json"

IDLE_SECONDS = 30.0
"""The API server closes a connection that was idle for 90 s, as one is while other tests run."""


class ApiError(Exception):
    def __init__(self, what: str, code: int, message: str) -> None:
        super().__init__(f"{what}: {code}: {message}")
        self.code = code
        self.message = message


class AdminClient:
    """Synchronous JSON calls to the API server."""

    def __init__(self, host: str, port: int, token: str) -> None:
        context = ssl._create_unverified_context()
        self._connection = http.client.HTTPSConnection(host, port, context=context, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._used_at = time.monotonic()

    def get(self, path: str, **params: str) -> Any:
        return self._call("GET", f"{path}?{urlencode(params)}" if params else path)

    def find(self, path: str) -> Any:
        """As get, but None when there is no such object."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def items(self, path: str, **params: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(path, **params)["items"]
        return items

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", path, body, "application/json")

    def post_text(self, path: str, text: str) -> None:
        """JSON as given, for what `json` cannot write; the answer is not read."""
        headers = {**self._headers, "Content-Type": "application/json"}
        self._leave_idle_connection()
        self._connection.request("POST", path, text, headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status == 201, answer[:500]

    def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> Any:
        return self._call("PATCH", path, body, content_type)

    def put(self, path: str, body: Any) -> Any:
        return self._call("PUT", path, body, "application/json")

    def delete(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._call("DELETE", path, body or {}, "application/json")

    def close(self) -> None:
        self._connection.close()

    def _call(self, method: str, path: str, body: Any = None, content_type: str = "") -> Any:
        headers = {**self._headers, "Content-Type": content_type} if content_type else self._headers
        self._leave_idle_connection()
        try:
            self._connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = self._connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next call connects again
            raise
        answer = json.loads(text) if text.startswith("{") else {}
        if response.status >= 400:
            raise ApiError(f"{method} {path}", response.status, answer.get("message", text))
        return answer

    def _leave_idle_connection(self) -> None:
        now = time.monotonic()
        if now - self._used_at > IDLE_SECONDS:
            self._connection.close()  # the next request connects again
        self._used_at = now
