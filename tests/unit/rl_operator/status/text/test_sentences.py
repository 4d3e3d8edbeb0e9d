"""Messages of others become one short line; displayed text is bounded in bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.api.refusal import looks_like_a_key
from rl_operator.status.text.sentences import (
    MAX_MESSAGE,
    clean,
    cut,
    joined,
    meant,
    redacted,
    sentence,
    shorten,
    without_control,
)


def test_secrets_are_removed() -> None:
    assert clean("key tml-abcdefgh123 refused") == "key [redacted] refused"


@pytest.mark.parametrize(
    "text",
    [
        "tml-SECRETSECRET",
        "key=sk-or-v1-SECRETSECRET,",
        "hf_SECRETSECRET!",
        "ghp_SECRETSECRET",
        "wandb_v1_SECRETSECRET",
        f"wandb: {'5ec2e7' * 6}abcd is refused",
        "Authorization: Bearer SECRETSECRET",
        "WANDB_API_KEY=SECRETSECRET",
        "{'api_key': 'SECRETSECRET', 'n': 1}",
        '"Password" : "SECRETSECRET"',
        "client_secret_v2 = SECRETSECRET",
        "GET https://me:SECRETSECRET@example.com/x failed",
        "git clone https://SECRETSECRET@example.com/x",
        "the key AKIASECRETSECRET1234 is refused",
    ],
)
def test_keys_inside_a_text(text: str) -> None:
    assert "[redacted]" in redacted(text)
    assert "SECRET" not in redacted(text).replace("client_secret", "")
    assert "5ec2e7" not in redacted(text)


@given(
    key=st.from_regex(r"(tml-|sk-|hf_|gh[a-z]_|wandb_v[0-9])[A-Za-z0-9_-]{6,40}|[0-9a-f]{40}", fullmatch=True),
    text=st.sampled_from(["%s", "key %s refused", "api: '%s',"]),
)
def test_what_a_refusal_hides_a_status_hides(key: str, text: str) -> None:
    assert looks_like_a_key(key)
    assert key not in redacted(text % key)


@pytest.mark.parametrize(
    "text",
    [
        'secret "tinker" not found',
        "Secret team-a/tinker has no key TINKER_API_KEY: kubectl -n team-a patch secret tinker",
        "disk-usage task-1 sk-1",
        "max_token_length=64 total_tokens: 512",
        "TINKER_API_KEY is not set",
        "wandb_version: 0.19.1",
        "GET https://example.com/a@b?c=d@e failed",
        "tinker://run:train:0/weights/000020",
    ],
)
def test_text_that_is_not_a_key_stays(text: str) -> None:
    assert redacted(text) == text


TRACEBACK = "Traceback (most recent call last):\n  File 'x.py', line 1, in <module>\n    a['x']\n"
PYDANTIC = """ValidationError: 1 validation error for Config
server_type
  Field required
    For further information visit https://errors.pydantic.dev"""

CUT_OFF = """ror_of(answer)
  File "/app/x.py", line 9, in raised
    raise OSError("no route")
    ^^^^^^^^^^^^^^^^^^^^^^^^^
OSError: no route
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/app/x.py", line 4, in main
  |     async with asyncio.TaskGroup() as group:
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/app/x.py", line 2, in one
    | ValueError: first
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/app/x.py", line 3, in two
    | ValueError: boom
    +------------------------------------
"""
FAULT = """Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "/app/x.py", line 9 in main
Extension modules: numpy (total: 1)
"""


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("error: no such environment", "no such environment"),
        (
            "2026-11-22 13:25:12 WARNING scores are equal\nerror: key tml-abcdefgh123 refused\n",
            "key [redacted] refused",
        ),
        ("error: the first\nerror: the last", "the last"),
        ("2026-11-22 13:25:12 WARNING scores are equal", ""),
        ("For further information visit https://errors.pydantic.dev", ""),
        ("", ""),
        (TRACEBACK, ""),
        (f"{TRACEBACK}KeyError: 'x'", "KeyError: 'x'"),
        (TRACEBACK + PYDANTIC, "ValidationError: 1 validation error for Config server_type Field required"),
        (CUT_OFF, "OSError: no route"),
        (GROUP, "ValueError: boom"),
        (GROUP[-200:], "ValueError: boom"),
        (f"{CUT_OFF}2026-11-22 13:25:12,250 INFO closed\nbye: now", "OSError: no route"),
        (f'{CUT_OFF}{{"time": "2026-11-22T13:25:12Z", "message": "closed"}}\n', "OSError: no route"),
        (FAULT, ""),
    ],
)
def test_only_what_a_program_said_on_purpose_is_its_cause(message: str, sentence: str) -> None:
    assert meant(message) == sentence


@given(st.text())
def test_any_message_becomes_one_short_line(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) <= MAX_MESSAGE
    assert "\n" not in cleaned


@given(st.text(), st.integers(min_value=3, max_value=100))
def test_any_text_is_cut_to_its_size_in_bytes(text: str, limit: int) -> None:
    text = text.encode(errors="ignore").decode()
    short = shorten(text, limit)
    assert len(short.encode()) <= limit
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


def test_sentences_have_their_full_stops() -> None:
    assert joined("One", "", "two.", "three…") == "One. two. three…"


def test_cut() -> None:
    assert (cut("abc", 3), cut("abcd", 3), cut("a bcd", 3)) == ("abc", "ab…", "a…")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m\n", "red\n"),
        ("\x1b]0;title\x07a\tb\r\n", "a\tb\r\n"),
        ("a\x00b\x9b\u202ec", "abc"),
        ("plain ü\n", "plain ü\n"),
    ],
)
def test_nothing_in_a_line_steers_a_terminal(text: str, shown: str) -> None:
    assert without_control(text) == shown


@pytest.mark.parametrize(
    ("said", "sentence_of_it"),
    [
        ("the trainer waits for the trajectory API", "The trainer waits for the trajectory API."),
        ("The connection is refused: is the service running?.", "The connection is refused: is the service running?"),
        ("A whole one. ", "A whole one."),
        ("It was cut…", "It was cut…"),
        ("", ""),
    ],
)
def test_what_a_program_said_becomes_a_sentence(said: str, sentence_of_it: str) -> None:
    assert sentence(said) == sentence_of_it
