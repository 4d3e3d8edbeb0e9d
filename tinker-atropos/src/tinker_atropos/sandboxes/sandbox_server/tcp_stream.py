"""What both ends of a lease ask of their connection. Source: tcp(7), socket(7)."""

import socket
import struct

SILENT_SECONDS = 30
"""How long the other end's node may be gone, or its network, until the stream ends."""

SEND_SECONDS = 30
"""How long the other end may leave unread what is sent."""

PROBE_AFTER, PROBE_EVERY, PROBES = 10, 5, 3

TCP_OPTIONS = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": PROBE_AFTER,
    "TCP_KEEPINTVL": PROBE_EVERY,
    "TCP_KEEPCNT": PROBES,
    "TCP_USER_TIMEOUT": 1000 * SILENT_SECONDS,
}


def prepare(stream: socket.socket) -> None:
    """Blocking; small lines are sent at once, and both an end that is gone and one that does not read are noticed."""
    stream.setblocking(True)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in TCP_OPTIONS.items():
        try:
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        except (AttributeError, OSError):  # not on this system: the others are still worth something
            continue
