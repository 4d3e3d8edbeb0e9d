"""What a file of an environment does by itself; `test_guide.py` runs it as a program."""

import pytest
from atroposlib.envs.base import APIServerConfig

from tinker_atropos.environments.offline_modes import with_key


@pytest.mark.parametrize(
    ("given", "usual", "used"),
    [("", "sk-usual", "sk-usual"), ("sk-own", "sk-usual", "sk-own"), ("", "", "none")],
    ids=["the usual variable", "a key of its own", "no key"],
)
def test_a_provider_gets_the_key_that_there_is(
    monkeypatch: pytest.MonkeyPatch, given: str, usual: str, used: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", usual)
    [server] = with_key([APIServerConfig(api_key=given, model_name="m")])
    assert (server.api_key, server.model_name) == (used, "m")
    assert used == "none" or used not in repr(server)
