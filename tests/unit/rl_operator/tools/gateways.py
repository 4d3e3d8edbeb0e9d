"""A gateway with the small toolset in a separate process, and a minimal client."""

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]
PROGRAM = "tests.unit.rl_operator.tools.http_program"
END_SECONDS = 30  # within one, on a machine that is not busy


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Gateway:
    address: str
    token: str
    process: subprocess.Popen[str]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def connect(self, seconds: float = 60) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=seconds)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, known: bool = True
    ) -> HttpAnswer:
        """`body`: bytes as they are, all else as JSON; `known`: with the token."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, sent, {**(self.headers if known else {}), **(headers or {})})
            answer = connection.getresponse()
            return HttpAnswer(answer.status, dict(answer.headers.items()), answer.read().decode())


@contextlib.contextmanager
def running_gateway(folder: Path, *options: str) -> Iterator[Gateway]:
    command = [sys.executable, "-m", PROGRAM, str(folder), *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        try:
            yield Gateway(address, (folder / "token").read_text(encoding="utf-8").strip(), process)
        finally:
            process.terminate()
            process.wait(END_SECONDS)
