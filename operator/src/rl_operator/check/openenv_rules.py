"""What is wrong with an RLEnvironment's OpenEnv server: what a pod could not run, or no policy should let out to."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from rl_operator.api.environment import METADATA, Environment
from rl_operator.api.refusal import Refusal, RefusalCode
from rl_operator.api.spec_parts.openenv import (
    COMMAND_OF_IMAGE,
    NEEDS_CLUSTER,
    ONE_OF_TWO,
    OPS_PORT,
    PORT_TAKEN,
    OpenEnv,
)
from rl_operator.check.quantities import resource_faults

ONE_OF_TWO_HERE: Final = "give exactly one of command and url: local mode starts the one, or connects to the other"
NO_KEYS: Final = "an OpenEnv server gets no keys: leave it out"
_OWN_PLACE: Final = "{} is the environment's own pod there: name the server's Service, or give its image"
_SPELLING: Final = "this may be an address in another spelling: write it as four decimal numbers, like 10.0.0.7"
_NUMBERS: Final = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?")
"""What a resolver takes for an address, as 127.1 or 0x7f000001. No Service has such a name."""
_CREDENTIALS: Final = "addresses of that kind belong to the node, whose credentials may be there: name the server's"


LAST_PORT: Final = 65_535
_EMBEDDING: Final = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Where in such an address the one of IPv4 is, is the network's to choose (RFC 8215)."""

_METADATA: Final = tuple(map(ipaddress.ip_network, METADATA))
_METADATA_NAMES: Final = frozenset(
    {"metadata.google.internal", "metadata.goog", "instance-data.ec2.internal", "metadata.tencentyun.com"}
)
_LOOPBACK_NAMES: Final = re.compile(r"(.+\.)?localhost|(ip6-)?localhost[46]?(\.localdomain[46]?)?|ip6-loopback")
"""As hosts files and resolvers have them."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def server_faults(environment: Environment, *, local: bool) -> Iterator[Refusal]:
    """`local`: on this machine, not in a cluster. For an RLEnvironment with `spec.openenv`."""
    openenv = environment.spec.openenv
    assert openenv is not None, "asked of OpenEnv servers only"
    yield from _local_choice(openenv) if local else _cluster_choice(openenv)
    if openenv.url is not None:
        yield from _url_faults(openenv.url, local=local)
    if environment.spec.secret_environment:
        names = [secret.name for secret in environment.spec.secret_environment]
        yield Refusal(code="Inconsistent", field="spec.secretEnvironment", given=names, hint=NO_KEYS)
    yield from resource_faults(("spec", "openenv", "resources"), openenv.resources)


def _local_choice(openenv: OpenEnv) -> Iterator[Refusal]:
    if openenv.image is not None:
        yield _fault("image", openenv.image, NEEDS_CLUSTER)
    elif bool(openenv.command) == (openenv.url is not None):
        yield _fault("", None, ONE_OF_TWO_HERE)


def _cluster_choice(openenv: OpenEnv) -> Iterator[Refusal]:
    """What the CRD's rules say, too."""
    if (openenv.image is None) == (openenv.url is None):
        yield _fault("", None, ONE_OF_TWO)
    elif openenv.command and openenv.url is not None:
        yield _fault("command", list(openenv.command), COMMAND_OF_IMAGE)
    if openenv.port == OPS_PORT:
        yield _fault("port", openenv.port, PORT_TAKEN)


def _url_faults(url: str, *, local: bool) -> Iterator[Refusal]:
    split = urlsplit(url)
    if int(split.netloc.rpartition("]")[2].partition(":")[2] or 1) > LAST_PORT:
        yield _fault("url", url, f"a port is at most {LAST_PORT}", "OutOfBounds")
    host = (split.hostname or "").rstrip(".")
    addresses = _addresses(host)
    if local:
        return
    if any(address in _LOCAL_NAT64 for address in addresses) or (not addresses and _NUMBERS.fullmatch(host)):
        yield _fault("url", url, _SPELLING)
    elif _LOOPBACK_NAMES.fullmatch(host) or any(each.is_loopback or each.is_unspecified for each in addresses):
        yield _fault("url", url, _OWN_PLACE.format(host))
    elif host in _METADATA_NAMES or any(address in known for known in _METADATA for address in addresses):
        yield _fault("url", url, _CREDENTIALS)


def _addresses(host: str) -> tuple[Address, ...]:
    """All that it may lead to; none: it is a name. IPv4 in the clothes of IPv6 is mapped, translated (SIIT, NAT64), or
    in a tunnel (6to4, Teredo).
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    embeds = any(address in each for each in _EMBEDDING)
    last = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF) if embeds else None
    return (address, *filter(None, (last, address.sixtofour, *(address.teredo or ()))))


def _fault(name: str, given: object, hint: str, code: RefusalCode = "Inconsistent") -> Refusal:
    return Refusal(code=code, field=f"spec.openenv.{name}".rstrip("."), given=given, hint=hint)
