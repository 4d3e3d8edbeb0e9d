"""rl_get_logs, and the patterns that it searches for."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.tools.contexts import Call, Unattended, drafted, refusal, write_status

from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_get_logs import LONGEST, MOST_LINES, NOTE, search_for
from rl_operator.tools.runs import named_run


@pytest.fixture
def write_log(context: CallContext) -> Callable[..., str]:
    """Puts lines into the log of a container of a new run."""

    def write_(*lines: str, container: str = "trainer") -> str:
        name = drafted(context)
        uid = named_run(context, name).metadata.uid
        pod = f"{name}-{uid[:5]}-1"
        write_status(context, name, phase="Running", podName=pod)
        assert isinstance(context.target, Unattended)
        path = context.target.layout.pod("default", pod).log(container)
        path.parent.mkdir(parents=True)
        path.write_text("".join(lines))
        return name

    return write_


def test_the_newest_lines_are_fenced(call: Call, write_log: Callable[..., str]) -> None:
    name = write_log(*(f"line {number}\n" for number in range(100)))
    answer = call("rl_get_logs", tail=3).answer
    assert answer.pop("pod").startswith(f"{name}-")
    assert answer == {
        "run_id": name,
        "container": "trainer",
        "lines": 3,
        "left_out": 0,
        "untrusted_output": "line 97\nline 98\nline 99",
        "note": NOTE,
    }


@pytest.mark.parametrize("container", ["environment", "env"])
def test_the_environments_log(call: Call, write_log: Callable[..., str], container: str) -> None:
    write_log("hello\n", container="environment")
    assert call("rl_get_logs", container=container).answer["untrusted_output"] == "hello"


def test_the_log_of_an_openenv_server(call: Call, write_log: Callable[..., str]) -> None:
    write_log("serving\n", container="openenv")
    assert call("rl_get_logs", container="openenv").answer["untrusted_output"] == "serving"
    assert "has no environment-1" in call("rl_get_logs", container="openenv-1").answer["error"]
    assert "sandboxes print nothing" in call("rl_get_logs", container="sandbox-0").answer["error"]
    assert "must be one of" in call("rl_get_logs", container="trainer-1").answer["error"]


def test_keys_and_colors_are_removed(call: Call, write_log: Callable[..., str]) -> None:
    write_log("\x1b[31mTINKER_API_KEY=tml-abcdefgh12345\x1b[0m\n", "fine\n")
    assert call("rl_get_logs").answer["untrusted_output"] == "TINKER_API_KEY=[redacted]\nfine"


def test_a_search_reaches_far_back_and_says_how_it_was_understood(call: Call, write_log: Callable[..., str]) -> None:
    write_log("ERROR: one\n", *["fine\n"] * 1000, "error: two\n", *["fine\n"] * 500)
    answer = call("rl_get_logs", grep="^error").answer
    assert (answer["untrusted_output"], answer["grep_taken_as"]) == ("ERROR: one\nerror: two", "pattern")
    assert call("rl_get_logs", grep="(error").answer == answer | {
        "lines": 0,
        "untrusted_output": "",
        "grep_taken_as": "plain text",
    }


def test_long_lines_are_cut_and_old_ones_left_out(call: Call, write_log: Callable[..., str]) -> None:
    write_log(*(f"{number:03} {'x' * 1000}\n" for number in range(MOST_LINES)))
    answer = call("rl_get_logs", tail=MOST_LINES).answer
    lines = answer["untrusted_output"].splitlines()
    assert len(answer["untrusted_output"]) <= 8000
    assert all(len(line) == 500 and line.endswith("…") for line in lines)
    assert lines[-1].startswith(f"{MOST_LINES - 1:03}")
    assert (answer["lines"], answer["left_out"]) == (len(lines), MOST_LINES - len(lines))


def test_a_run_that_has_not_started_has_no_log(context: CallContext, call: Call) -> None:
    drafted(context)
    assert "has not started" in refusal(call("rl_get_logs"))["error"]


@pytest.mark.parametrize(
    "arguments", [{"tail": 0}, {"tail": 201}, {"grep": ""}, {"grep": "x" * 201}, {"container": "supervisor"}]
)
def test_invalid_arguments_are_refused(call: Call, write_log: Callable[..., str], arguments: dict[str, Any]) -> None:
    write_log("line\n")
    assert next(iter(arguments)) in refusal(call("rl_get_logs", **arguments))["error"]


LINE = "step 12/40 [WARN] loss=0.5 (a+b) C:\\temp"


@pytest.mark.parametrize(
    ("text", "taken_as", "found"),
    [
        ("loss", "plain text", True),
        ("LOSS", "plain text", True),
        ("gain", "plain text", False),
        ("(a+b)", "plain text", True),
        ("(a+)+$", "plain text", False),
        ("a{2}", "plain text", False),
        ("[WARN", "plain text", True),
        ("\\", "plain text", True),
        ("[z-a].", "plain text", False),
        (r"step \d\d/40", "pattern", True),
        (r"step \d+", "plain text", False),
        ("step.*loss", "pattern", True),
        ("loss.*step", "pattern", False),
        ("gain|loss", "pattern", True),
        ("gain|win", "pattern", False),
        ("^step", "pattern", True),
        ("^loss", "pattern", False),
        ("temp$", "pattern", True),
        ("loss$", "pattern", False),
        (r"\[warn\]", "pattern", True),
        ("[Ww]arn", "pattern", True),
        ("[^l]oss", "pattern", False),
        (r"\bloss\b", "pattern", True),
        (r"\boss", "pattern", False),
        (r"C:\\temp", "pattern", True),
        ("l..s", "pattern", True),
        (".*", "pattern", True),
        ("|", "pattern", True),
    ],
)
def test_patterns_and_what_they_find(text: str, taken_as: str, found: bool) -> None:
    search = search_for(text)
    assert (search.taken_as, search.finds(LINE)) == (taken_as, found)


def test_a_long_pattern_is_plain_text() -> None:
    assert search_for("." * LONGEST).taken_as == "pattern"
    assert search_for("." * (LONGEST + 1)).taken_as == "plain text"


@given(st.text(min_size=1, max_size=30))
def test_any_text_without_punctuation_finds_itself(text: str) -> None:
    plain = "".join(sign for sign in text if sign.isalnum())
    assert search_for(plain).finds(f"before {plain} after")


@given(st.text(alphabet="ab.*|[]^$\\+?(){}d-", min_size=1, max_size=LONGEST), st.text(alphabet="ab", max_size=20))
def test_any_pattern_is_understood_somehow(text: str, line: str) -> None:
    assert search_for(text).finds(line) in (True, False)


@pytest.mark.parametrize(
    "text", ["(a+)+$", "a*a*a*a*a*a*b", "(a|a)*b", "a?" * 40 + "a" * 20, ".*" * 49 + "b", "|".join(["a.*a.*b"] * 12)]
)
def test_no_pattern_takes_long(text: str) -> None:
    """Two thousand of the longest lines; milliseconds in the worst case, and years with backtracking."""
    line, search = "a" * 500, search_for(text)
    began = time.process_time()
    for _ in range(200):
        search.finds(line)
    assert time.process_time() - began < 5
