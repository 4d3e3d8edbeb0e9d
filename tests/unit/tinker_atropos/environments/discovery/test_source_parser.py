"""Malformed files: each gives a tree or one named error."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_atropos.environments.discovery.source_parser import (
    MAX_BYTES,
    UnreadableSourceError,
    compile_problem,
    parse,
    parse_file,
)

BROKEN = {
    "no Python": (b"x = 1\ndef f(:", "SyntaxError", 2, "not valid Python"),
    "bad indentation": (b"if x:\npass", "SyntaxError", 2, "expected an indented block"),
    "a null byte": (b"x = 1\ny = '\0'", "Unreadable", 2, "null byte"),
    "UTF-16": ("x = 1\n".encode("utf-16"), "Unreadable", 1, "save it as UTF-8"),
    "Latin-1 without a word of it": (b"x = 1\n\ny = '\xe9'", "Unreadable", 3, "not utf-8 text"),
    "an encoding that nobody knows": (b"# coding: klingon\nx = 1", "Unreadable", 1, "unknown encoding: klingon"),
    "an encoding that is not text": (b"# coding: hex\n00", "Unreadable", 1, "encoding cannot be read"),
    "an encoding that never works": (b"# coding: undefined\nx", "Unreadable", 1, "encoding cannot be read"),
    "a null byte in another encoding": (b"# coding: utf-7\n+AAA-", "Unreadable", 2, "null byte"),
    "surrogates": (b"# coding: unicode_escape\nx = '\\ud800'", "Unreadable", None, "not text"),
    "many brackets": (b"(" * 100_000, "SyntaxError", 1, "too many nested parentheses"),
    "many signs": (b"-" * 500_000 + b"1", "Unreadable", None, "nested too deeply"),
    "a long sum": (b"x = 1" + b" + 1" * 100_000, "Unreadable", None, "nested too deeply"),
    "a long path": (b"x = a" + b".a" * 100_000, "Unreadable", None, "nested too deeply"),
    "too much of it": (b"#" * (MAX_BYTES + 1), "Unreadable", None, "larger than 2048 KiB"),
}


@pytest.mark.parametrize(("content", "reason", "line", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_file_is_named_with_its_line(tmp_path, content, reason, line, message):
    file = tmp_path / "env.py"
    file.write_bytes(content)
    with pytest.raises(UnreadableSourceError, match=message) as caught:
        parse_file(file)
    assert (caught.value.reason, caught.value.line) == (reason, line)


def test_an_irregular_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe, folder, gone = tmp_path / "pipe.py", tmp_path / "folder.py", tmp_path / "gone.py"
    os.mkfifo(pipe)
    folder.mkdir()
    gone.symlink_to(tmp_path / "nowhere")
    for path in (pipe, folder, gone):
        with pytest.raises(UnreadableSourceError, match="not a regular file"):
            parse_file(path)


READABLE = [
    b"",
    b"\xef\xbb\xbfx = 1",
    b"# coding: latin-1\nx = '\xe9'",
    b"x = '\\d'",
    b"x = 1\r\ny = 2\r",
    b"\x0cx = 1",
]


@pytest.mark.parametrize("content", READABLE)
@pytest.mark.filterwarnings("error")
def test_odd_but_valid_files(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "env.py"
    file.write_bytes(content)
    assert compile_problem(parse_file(file)) is None


@pytest.mark.parametrize(
    ("source", "line"), [("x = 1\nreturn x", 2), ("def f(a, a): ...", 1), ("class A:\n    await x", 2), ("break", 1)]
)
def test_errors_that_only_the_compiler_finds(source: str, line: int) -> None:
    found = compile_problem(parse(source))
    assert (found.reason, found.line) == ("SyntaxError", line)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200)
    | st.builds(
        lambda name, rest: f"# coding: {name}\n{rest}".encode(errors="replace"),
        st.text(max_size=20),
        st.text(max_size=50),
    )
)
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "env.py"
    file.write_bytes(content)
    try:
        compile_problem(parse_file(file))
    except UnreadableSourceError as error:
        assert error.message  # noqa: PT017 -- both ends are right
