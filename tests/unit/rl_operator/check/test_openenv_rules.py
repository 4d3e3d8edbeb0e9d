"""What is wrong with an OpenEnv server's settings, on a cluster and in local mode."""

from typing import Any

import pytest
from tests.unit.rl_operator.samples import own_environment

from rl_operator.check.openenv_rules import server_faults

IMAGE = {"image": "registry.test/echo:1"}


def faults(openenv: dict[str, Any], *, local: bool = False, **spec: Any) -> list[str]:
    environment = own_environment(source=None, openenv=openenv, **spec)
    return [fault.sentence for fault in server_faults(environment, local=local)]


FITTING: dict[str, tuple[dict[str, Any], bool]] = {
    "an image": (IMAGE, False),
    "an image with a command": ({**IMAGE, "command": ["serve"]}, False),
    "a URL": ({"url": "http://echo.games.svc:65535"}, False),
    "an IPv6 address": ({"url": "http://[fd12::7]:9000"}, False),
    "a program of this machine": ({"command": ["python", "/srv/server.py"]}, True),
    "a URL of this machine": ({"url": "http://127.0.0.1:8000"}, True),
}


@pytest.mark.parametrize(("openenv", "local"), FITTING.values(), ids=FITTING)
def test_what_fits(openenv: dict[str, Any], local: bool) -> None:
    assert faults(openenv, local=local) == []


WRONG: dict[str, tuple[dict[str, Any], bool, str]] = {
    "nothing": ({}, False, "spec.openenv: give exactly one of image and url"),
    "a program of this machine": ({"command": ["serve"]}, False, "a command without an image is for local mode"),
    "both": ({**IMAGE, "url": "http://echo"}, False, "give exactly one of image and url"),
    "a command elsewhere": (
        {"url": "http://echo", "command": ["serve"]},
        False,
        'spec.openenv.command is ["serve"]: command belongs to an image',
    ),
    "our port": ({**IMAGE, "port": 8004}, False, "spec.openenv.port is 8004: port 8004 is taken"),
    "a port that is none": ({"url": "http://echo:99999"}, False, "a port is at most 65535"),
    "this pod": ({"url": "http://127.0.0.1:8000"}, False, "127.0.0.1 is the environment's own pod there"),
    "this pod by name": ({"url": "http://localhost:8000"}, False, "localhost is the environment's own pod there"),
    "any address": ({"url": "http://[::]:8000"}, False, "is the environment's own pod there"),
    "the metadata service": ({"url": "http://169.254.169.254"}, False, "belong to the node"),
    "in another dress": ({"url": "http://[::ffff:169.254.169.254]"}, False, "belong to the node"),
    "the metadata service of IPv6": ({"url": "http://[fd00:ec2::254]"}, False, "belong to the node"),
    "no such limit": (
        {**IMAGE, "resources": {"limits": {"memory": "much"}}},
        False,
        'spec.openenv.resources.limits.memory is "much": it must be a Kubernetes quantity',
    ),
    "an image here": (IMAGE, True, 'spec.openenv.image is "registry.test/echo:1": local mode runs no images'),
    "an image with a command here": ({**IMAGE, "command": ["serve"]}, True, "name spec.openenv.command"),
    "nothing here": ({}, True, "spec.openenv: give exactly one of command and url"),
    "both here": ({"command": ["serve"], "url": "http://echo"}, True, "give exactly one of command and url"),
}


@pytest.mark.parametrize(("openenv", "local", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(openenv: dict[str, Any], local: bool, words: str) -> None:
    [sentence] = faults(openenv, local=local)
    assert words in sentence


def test_a_server_gets_no_keys() -> None:
    [sentence] = faults(IMAGE, secretEnvironment=[{"name": "judge", "key": "JUDGE_KEY"}])
    assert sentence == 'spec.secretEnvironment is ["judge"]: an OpenEnv server gets no keys: leave it out'


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.1",
            "127.0.1",
            "0x7f000001",
            "0x7F.1",
            "0177.0.0.1",
            "2130706433",
            "0",
            "0.0",
            "127.0.0.1.",
            "localhost.",
        ),
        *("169.254.43518", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.169.254.", "0xa9.254.0251.254"),
        *("[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::1]", "[::]"),
        *("[::ffff:0:169.254.169.254]", "[64:ff9b:1::a9fe:a9fe]", "[64:ff9b:1:a9fe:a9:fe00::]", "[2002:a9fe:a9fe::]"),
        *("[2001:0:a9fe:a9fe::]", "[2001::5601:5601]", "[2002:7f00:1::]"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192", "[fd00:ec2::23]", "[fd20:ce::254]", "[fe80::1]"),
        *("metadata.google.internal", "METADATA.google.internal.", "instance-data.ec2.internal", "metadata.goog"),
        *(
            "a.localhost",
            "ip6-localhost",
            "ip6-loopback",
            "localhost4",
            "localhost.localdomain",
            "localhost6.localdomain6",
        ),
        *("010.0.0.7", "1.2.3", "1"),
    ],
)
def test_no_spelling_of_an_address_gets_past(host: str) -> None:
    """What `inet_aton` takes, and with it every resolver."""
    assert len(faults({"url": f"http://{host}:8000"})) == 1


@pytest.mark.parametrize(
    "host",
    [
        *("10.0.0.7", "100.100.100.201", "[64:ff9b::10.0.0.7]", "[2002:a00:7::]", "[fd12::7]"),
        *("1.echo.games.svc", "echo-1", "0xcafe.example.com", "metadata", "metadata.games.svc", "localhost.games.svc"),
    ],
)
def test_addresses_and_names_in_plain_are_taken(host: str) -> None:
    assert faults({"url": f"http://{host}:8000"}) == []
