"""The way out to an OpenEnv server that runs elsewhere, as far as a NetworkPolicy can say it: it knows no names."""

import ipaddress
import re
from typing import Any, Final
from urllib.parse import urlsplit

from rl_operator.api.names import NAMESPACE_NAME_LABEL

ANYWHERE: Final = ("0.0.0.0/0", "::/0")

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SERVICE: Final = re.compile(r"[^.]+\.(?P<namespace>[^.]+)\.svc(\..+)?")

Peer = dict[str, Any]


def server_port(url: str) -> int:
    """The URL's port, or its scheme's."""
    split = urlsplit(url)
    return split.port or _DEFAULT_PORTS[split.scheme]


def server_peers(url: str) -> tuple[list[Peer], tuple[str, ...]]:
    """Whom a policy must let the environment reach for that URL: peers inside of the cluster, and address ranges.

    A policy sees pods and addresses. An address is itself. The name of a Service stands for the pods of its namespace:
    which of them are behind it, the Service may change. Any other name may stand for anything.
    """
    host = urlsplit(url).hostname or ""
    try:
        return [], (str(ipaddress.ip_network(host)),)
    except ValueError:
        pass
    if "." not in host:
        return [{"podSelector": {}}], ()
    if service := _SERVICE.fullmatch(host):
        return [{"namespaceSelector": {"matchLabels": {NAMESPACE_NAME_LABEL: service["namespace"]}}}], ()
    return [{"namespaceSelector": {}}], ANYWHERE
