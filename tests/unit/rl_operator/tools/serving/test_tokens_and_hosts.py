"""Which host names, tokens and token files the HTTP server accepts."""

from pathlib import Path

import pytest

from rl_operator.operator_errors import RefusedError
from rl_operator.tools.serving.tokens_and_hosts import (
    bearer_token,
    is_among,
    is_called_rightly,
    make_token,
    read_tokens,
)

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("host", "rightly"),
    [
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("10.1.2.3", True),
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("rl-tools:8080", True),
        ("rl-tools.team.svc:8080", True),
        ("rl-tools.team.svc.cluster.local.", True),
        ("tools.example.com:443", True),
        ("attacker.com", False),
        ("127.0.0.1.attacker.com", False),
        ("localhost.attacker.com:8080", False),
        ("rl-tools.team.svc.attacker.com", False),
        ("svc.attacker.com", False),
        ("user@attacker.com", False),
        ("[::1", False),
        ("", False),
        (":8080", False),
    ],
)
def test_only_host_names_that_others_cannot_own(host: str, *, rightly: bool) -> None:
    assert is_called_rightly(host, {"tools.example.com"}) is rightly


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer eyJh.eyJp.c2ln_-", "eyJh.eyJp.c2ln_-"),
        ("bearer  abc== ", "abc=="),
        ("Bearer", None),
        ("Bearer ", None),
        ("Bearer a,b", None),
        ("Bearer a b", None),
        ("Bearer ä", None),
        ("Basic abc", None),
        ("", None),
    ],
)
def test_a_token_has_the_standard_syntax(header: str, token: str | None) -> None:
    assert bearer_token(header) == token


def test_a_created_token_belongs_to_its_owner_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "state" / "tools-token"
    make_token(path)
    said: list[str] = []
    [token] = read_tokens(path, said.append)
    make_token(path)
    assert read_tokens(path, said.append) == (token,)
    assert path.stat().st_mode & 0o777 == 0o600
    assert (len(token) > 40, said) == (True, [])


def test_a_token_file_has_one_token_per_line(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# of the reviewer\n{TOKEN}\n\n  {TOKEN}+/=  \n")
    path.chmod(0o644)
    said: list[str] = []
    tokens = read_tokens(path, said.append)
    assert tokens == (TOKEN, f"{TOKEN}+/=")
    assert said == [f"others on this machine may read the tokens in {path}: chmod 600 {path}"]
    assert is_among(TOKEN, tokens)
    assert not is_among(TOKEN[:-1], tokens)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("\n# none\n", "is empty: write one token per line", id="empty"),
        pytest.param(
            f"{TOKEN}\nshort\n", "line 2 of .* is not a token: a token has at least 16 characters", id="short"
        ),
        pytest.param("two words of a sentence\n", "line 1 of .* is not a token", id="words"),
        pytest.param(None, "cannot be read", id="missing"),
    ],
)
def test_other_files_are_refused_without_being_shown(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "tokens"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RefusedError, match=sentence) as refused:
        read_tokens(path, lambda _: None)
    assert "short" not in str(refused.value)
    assert TOKEN not in str(refused.value)
