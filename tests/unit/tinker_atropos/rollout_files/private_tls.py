"""A certificate authority of one's own, and a server with a certificate of it in front of another server."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def make_certificates(folder: Path) -> Path:
    """The authority's, in PEM; beside it are `server.pem` and `server.key`, for localhost."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    authority, key = folder / "ca.pem", folder / "ca.key"
    _openssl("req", "-x509", *EC, "-subj", "/CN=lab", "-keyout", key, "-out", authority)
    named = (
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=CA:FALSE",
    )
    signed = ("-CA", authority, "-CAkey", key, "-keyout", folder / "server.key", "-out", folder / "server.pem")
    _openssl("req", "-x509", *EC, *named, *signed)
    return authority


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


@asynccontextmanager
async def behind_tls(url: str, folder: Path) -> AsyncIterator[str]:
    """The address at which the server at `url` answers with the certificate that is in `folder`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    server = urlsplit(url)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(server.hostname, server.port)
        with contextlib.suppress(OSError, asyncio.CancelledError):  # the test is over before its connections are
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    async with await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context) as listening:
        yield f"https://localhost:{listening.sockets[0].getsockname()[1]}"


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(65_536):
        writer.write(part)
        await writer.drain()
    writer.close()
