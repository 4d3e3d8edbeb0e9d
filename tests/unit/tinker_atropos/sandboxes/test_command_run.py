"""What is kept of an output, and how a command ends."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.sandboxes.conftest import SECONDS, carriers, eventually, need, server_of, shell

from tinker_atropos.sandboxes.local_sandbox import LocalSandbox
from tinker_atropos.sandboxes.sandbox import Command, SandboxError, SandboxLostError
from tinker_atropos.sandboxes.sandbox_server.command_run import KeptOutput
from tinker_atropos.sandboxes.sandbox_server.walls import PROCESSES


@given(written=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200)), limit=st.integers(-1, 120))
def test_an_output_keeps_its_first_and_its_last_half(written: bytes, cuts: list[int], limit: int) -> None:
    kept = KeptOutput(limit)
    for begin, end in pairwise([0, *sorted(cuts), len(written)]):
        kept.add(written[begin:end])
    half = max(0, limit // 2)
    dropped = max(0, len(written) - 2 * half)
    assert kept.dropped == dropped
    if dropped:
        head, tail = written[:half], written[half + dropped :]
        assert kept.text() == (
            f"{head.decode(errors='replace')}\n[{dropped} bytes are left out]\n{tail.decode(errors='replace')}"
        )
    else:
        assert kept.text() == written.decode(errors="replace")


@pytest.mark.parametrize(
    ("program", "exit_code", "output"),
    [
        ("echo out; echo err >&2; exit 3", 3, "out\nerr\n"),
        (["printf", "%s", "$HOME; no shell"], 0, "$HOME; no shell"),
        ("kill -TERM $$", 143, ""),
        ("kill -KILL $$", 137, ""),
        ("exec >&- 2>&-; while ! test -e closed; do touch closed; done; exit 7", 7, ""),
        (r"printf '\377\0'", 0, "�\0"),
        ("cat", 0, "stdin"),
    ],
    ids=["both streams", "arguments", "SIGTERM", "SIGKILL", "output closed", "no UTF-8", "stdin"],
)
def test_a_command_ends(sandbox: LocalSandbox, program: str | list[str], exit_code: int, output: str) -> None:
    result = sandbox.run(Command(program, SECONDS, stdin="stdin"))
    assert (result.exit_code, result.output, result.timed_out, result.dropped_bytes) == (exit_code, output, False, 0)


@pytest.mark.parametrize(
    ("program", "words"),
    [(["no-such-program"], "no-such-program"), ([], "no program"), ("a\0b", "null")],
)
def test_what_cannot_be_started_is_refused(sandbox: LocalSandbox, program: str | list[str], words: str) -> None:
    with pytest.raises(SandboxError, match=words) as refused:
        sandbox.run(Command(program, SECONDS))
    assert not isinstance(refused.value, SandboxLostError)
    assert shell(sandbox, "echo on").output == "on\n"


def test_a_command_has_its_folder_and_variables(sandbox: LocalSandbox) -> None:
    result = shell(sandbox, 'mkdir -p "$HOME/in"; cd "$HOME/in"; pwd; echo $WORD', env_vars={"WORD": "word"})
    assert result.output == f"{sandbox.folder}/in\nword\n"
    assert shell(sandbox, "pwd", folder="in").output == f"{sandbox.folder}/in\n"
    assert shell(sandbox, "pwd", folder="/usr").output == "/usr\n"


def test_a_hung_command_is_cut_with_all_that_it_started(sandbox: LocalSandbox) -> None:
    """Also what ignores signals, and what left its session and its parent."""
    text = "trap '' TERM INT; echo begun; (setsid sh -c 'trap \"\" TERM; sleep 1000' &) ; sleep 1000; sleep 1000"
    result = shell(sandbox, text, 0.5, env_vars={"MARK": "of-the-hung-command"})
    assert (result.exit_code, result.timed_out, result.output) == (124, True, "begun\n")
    eventually("ended: what the command started", lambda: not carriers("of-the-hung-command"))


def test_what_runs_in_the_background_holds_no_command_up(sandbox: LocalSandbox) -> None:
    """Though it has the command's output open. It goes on until the sandbox ends."""
    result = shell(sandbox, "sleep 1000 & echo $!")
    assert not result.timed_out
    assert shell(sandbox, f"kill -0 {int(result.output)} && kill {int(result.output)}").exit_code == 0


def test_exit_codes_are_right_while_orphans_are_buried(sandbox: LocalSandbox) -> None:
    """A process that nobody waits for is buried by the watch; a command's exit code must not go with it."""
    programs = [Command(f"(true &); exit {code}", SECONDS) for code in range(1, 101)]
    with ThreadPoolExecutor(8) as threads:
        assert [ended.exit_code for ended in threads.map(sandbox.run, programs)] == list(range(1, 101))


def test_a_flood_of_output_is_read_and_forgotten(sandbox: LocalSandbox) -> None:
    result = shell(sandbox, "echo first; head -c 1G /dev/zero; echo last", max_output=1000)
    assert (result.output[:6], result.output[-6:]) == ("first\n", "\0last\n")
    assert result.dropped_bytes == 2**30 + len("first\nlast\n") - 1000
    need(sandbox, PROCESSES)
    with open(f"/proc/{server_of(sandbox)}/status", encoding="ascii") as status:  # noqa: PTH123
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    assert peak < 64 * 1024, f"the server needed {peak} KiB for an output of 1 GiB"
