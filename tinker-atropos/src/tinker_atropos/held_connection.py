"""A connection to the trajectory API on which nothing is said: while it is open, the process at its other end lives.

The kernel closes it with the process, and keeps it for one that is frozen or gets no CPU. So a death is known at once,
and silence alone is no death.
"""

import asyncio
import contextlib
from typing import Final
from urllib.parse import urlsplit

CONNECT_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 600.0
"""How long a process may be silent while its connection is open, in seconds in which the other side runs."""


class HeldConnection(asyncio.Protocol):
    """Belongs to one event loop."""

    def __init__(self, url: str, path: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._request = f"GET {parts.path}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
        self._transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        return self._transport is not None

    async def keep(self) -> None:
        """Open it unless it is; a failure is left to the next call."""
        if self.open:
            return
        with contextlib.suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: self, self._host, self._port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a TCP connection"
        self._transport = transport
        transport.write(self._request)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
