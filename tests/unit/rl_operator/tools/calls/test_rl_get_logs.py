from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.rl_operator.tools.contexts import Unattended, drafted, write_status

from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_get_logs import MOST_LINES, NOTE
from rl_operator.tools.runs import named_run
from rl_operator.tools.toolset import Outcome

Call = Callable[..., Outcome]


@pytest.fixture
def write_log(context: CallContext) -> Callable[..., str]:
    """Puts lines into the log of a container of a new run."""

    def write_(*lines: str, container: str = "trainer") -> str:
        name = drafted(context)
        uid = named_run(context, name).metadata.uid
        pod = f"{name}-{uid[:5]}-1"
        write_status(context, name, phase="Running", podName=pod)
        assert isinstance(context.target, Unattended)
        path = context.target._layout.pod("default", pod).log(container)
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
    outcome = call("rl_get_logs")
    assert outcome.code == "refused"
    assert "has not started" in outcome.answer["error"]


@pytest.mark.parametrize(
    "arguments", [{"tail": 0}, {"tail": 201}, {"grep": ""}, {"grep": "x" * 201}, {"container": "supervisor"}]
)
def test_invalid_arguments_are_refused(call: Call, write_log: Callable[..., str], arguments: dict[str, Any]) -> None:
    write_log("line\n")
    outcome = call("rl_get_logs", **arguments)
    assert outcome.code == "refused"
    assert next(iter(arguments)) in outcome.answer["error"]
