import json

import pytest

from tinker_atropos.environments.adapters.openenv.openenv_settings import OpenEnvSettings, load_openenv_settings
from tinker_atropos.errors import ConfigError

URL = "http://127.0.0.1:8000"


def load(**settings):
    return load_openenv_settings({"RL_OPENENV": json.dumps(settings)})


def test_defaults():
    assert load(url=URL) == OpenEnvSettings(
        url=URL,
        maxSessions=16,
        timeoutSeconds=60.0,
        trainingSeeds=100_000,
        heldOutSeeds=100,
        maxFrameBytes=1_048_576,
    )


@pytest.mark.parametrize(
    ("url", "websocket", "host", "port"),
    [
        (URL, "ws://127.0.0.1:8000/ws", "127.0.0.1", 8000),
        ("http://env/", "ws://env/ws", "env", 80),
        ("https://example.com/echo", "wss://example.com/echo/ws", "example.com", 443),
        ("http://[::1]:8000", "ws://[::1]:8000/ws", "::1", 8000),
    ],
)
def test_addresses(url, websocket, host, port):
    settings = load(url=url)
    assert (settings.websocket_url, settings.host, settings.port) == (websocket, host, port)


REFUSED = {
    "missing": ({}, "RL_OPENENV.url is missing: it is the address of the OpenEnv server"),
    "null": ({"url": None}, "RL_OPENENV.url is None: input should be a valid string"),
    "scheme": ({"url": "ws://x"}, "RL_OPENENV.url is 'ws://x': must look like http://127.0.0.1:8000"),
    "port": ({"url": "http://x:99999"}, "RL_OPENENV.url is 'http://x:99999': port out of range 0-65535"),
    "no host": ({"url": "http://"}, "RL_OPENENV.url is 'http://': must look like"),
    "query": ({"url": "http://x?a=1"}, "RL_OPENENV.url is 'http://x?a=1': must look like"),
    "zero": (
        {"url": URL, "maxSessions": 0},
        "RL_OPENENV.maxSessions is 0: input should be greater than or equal to 1",
    ),
    "text": ({"url": URL, "maxSessions": "8"}, "RL_OPENENV.maxSessions is '8': input should be a valid integer"),
    "yes": ({"url": URL, "heldOutSeeds": True}, "RL_OPENENV.heldOutSeeds is True: input should be a valid integer"),
    "no time": ({"url": URL, "timeoutSeconds": 0}, "RL_OPENENV.timeoutSeconds is 0: input should be greater than 0"),
    "small frames": ({"url": URL, "maxFrameBytes": 5}, "RL_OPENENV.maxFrameBytes is 5: input should be greater"),
    "snake case": (
        {"url": URL, "max_sessions": 8},
        "RL_OPENENV.max_sessions is not a setting (known: url, maxSessions, timeoutSeconds, trainingSeeds,",
    ),
    "seeds": (
        {"url": URL, "heldOutSeeds": 2**31 - 1, "trainingSeeds": 2**31 - 1},
        "RL_OPENENV: heldOutSeeds and trainingSeeds together must be at most 2147483648",
    ),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_name_the_field_the_value_and_what_is_allowed(settings, message):
    with pytest.raises(ConfigError) as refused:
        load(**settings)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("text", ["", " ", "{", "[]", "5", '"http://x"', '{"url": "http://x", "timeoutSeconds": NaN}'])
def test_what_is_not_a_json_object_of_settings(text):
    with pytest.raises(ConfigError, match=r"^RL_OPENENV"):
        load_openenv_settings({"RL_OPENENV": text})


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(ConfigError, match=r"RL_OPENENV\.url: must not hold a user name or a password") as refused:
        load(url="http://me:secret@x")
    assert "secret" not in str(refused.value)
