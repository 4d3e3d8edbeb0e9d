"""A node as the API server sees it: an address where a kubelet serves containers' logs, played by the test."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.integration.cluster.admin import AdminClient
from tests.integration.cluster.kubelet import NODE


class LogNode:
    """Serves `/containerLogs/NAMESPACE/POD/CONTAINER` over TLS on loopback, as the kubelet does."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.logs: dict[str, str] = {}
        """By `namespace/pod`, or by `namespace/pod/container`."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def register(self, admin: AdminClient) -> None:
        admin.post("/api/v1/nodes", {"metadata": {"name": NODE}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_address[1]}},
        }
        admin.patch(f"/api/v1/nodes/{NODE}/status", {"status": status})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        logs = self.logs

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                _, _, namespace, pod, container = url.path.split("/")
                text = logs.get(f"{namespace}/{pod}/{container}") or logs[f"{namespace}/{pod}"]
                [limit] = parse_qs(url.query).get("limitBytes", [None])
                body = text.encode()[: int(limit) if limit else None]
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler
