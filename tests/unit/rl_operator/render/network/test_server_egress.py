"""The way out to a server that runs elsewhere."""

from typing import Any

import pytest
from tests.unit.rl_operator.samples import make_run, make_runtime, openenv_environment, own_inputs

from rl_operator.render.network.environment_network import network_children

RUN = make_run(environment="own/digits")
DNS = 53
METADATA_V6 = ["fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128"]


def egress(runtime: Any = None, **openenv: Any) -> list[dict[str, Any]]:
    inputs = own_inputs(RUN, runtime or make_runtime(), openenv_environment(**openenv))
    rules: list[dict[str, Any]] = network_children(RUN, inputs)[1]["spec"]["egress"]
    return rules


def ports(rule: dict[str, Any]) -> set[int]:
    return {port["port"] for port in rule["ports"]}


def test_an_image_reaches_the_run_and_no_resolver() -> None:
    assert [ports(rule) for rule in egress()] == [{8000, 8001}]


def test_where_the_runtime_lets_environments_out_names_are_resolved() -> None:
    runtime = make_runtime(environmentEgress=[{"cidr": "203.0.113.0/24", "ports": [443]}])
    assert [ports(rule) for rule in egress(runtime)] == [{8000, 8001}, {DNS}, {443}]


ANYWHERE = [
    {"namespaceSelector": {}},
    {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}},
    {"ipBlock": {"cidr": "::/0", "except": METADATA_V6}},
]
GAMES = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "games"}}}]
URLS: dict[str, tuple[str, list[dict[str, Any]], int]] = {
    "an address": ("http://10.0.0.7:9000", [{"ipBlock": {"cidr": "10.0.0.7/32"}}], 9000),
    "an IPv6 address": ("http://[fd12::7]:9000", [{"ipBlock": {"cidr": "fd12::7/128"}}], 9000),
    "a Service of the namespace": ("http://echo", [{"podSelector": {}}], 80),
    "a Service of another": ("http://echo.games.svc:9000", GAMES, 9000),
    "its full name": ("http://echo.games.svc.cluster.local:9000", GAMES, 9000),
    "another name": ("https://echo.example.com", ANYWHERE, 443),
}


@pytest.mark.parametrize(("url", "peers", "port"), URLS.values(), ids=URLS)
def test_a_url_opens_as_little_as_a_policy_can_say(url: str, peers: list[dict[str, Any]], port: int) -> None:
    data, dns, server = egress(url=url)
    assert (ports(data), ports(dns), ports(server)) == ({8000, 8001}, {DNS}, {port})
    assert server["to"] == peers
