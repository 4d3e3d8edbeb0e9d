"""What a server does with a stream that is not as it should be."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.sandboxes.conftest import SECONDS, carriers, eventually, need, server_of, shell

from tinker_atropos.sandboxes import stream_sandbox
from tinker_atropos.sandboxes.local_pool import LocalSandbox
from tinker_atropos.sandboxes.sandbox import Command, SandboxError, SandboxLostError
from tinker_atropos.sandboxes.sandbox_server import server
from tinker_atropos.sandboxes.sandbox_server.process_watch import ProcessWatch
from tinker_atropos.sandboxes.sandbox_server.server import KeptOutput, SandboxServer
from tinker_atropos.sandboxes.sandbox_server.walls import PROCESSES
from tinker_atropos.sandboxes.stream_sandbox import StreamSandbox


class Served:
    """A server in a thread of this process, and the client's end of its stream."""

    def __init__(self, folder: Path) -> None:
        self.stream, self.theirs = socket.socketpair()
        self.worked: list[str] = []
        self.watch = ProcessWatch(64, 4)
        self.server = SandboxServer(
            self.theirs,
            str(folder),
            self.watch,
            ["a wall"],
            {"PATH": "/bin"},
            at_work=lambda: self.worked.append("once more"),
        )
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # its client left without reading everything
            self.server.serve()

    def has_returned(self) -> bool:
        self.thread.join(SECONDS)
        return not self.thread.is_alive()


@pytest.fixture
def served_sandbox(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.stream.close()
    assert served.has_returned()
    served.theirs.close()


def test_once_a_sandbox_ends_its_end_is_the_only_answer(served_sandbox: Served) -> None:
    """A command that cannot start any more, and one that was killed, are lost: they have no result of their own."""
    served_sandbox.watch.close()
    asked = {"program": "true", "stdin": "", "folder": None, "env_vars": {}, "timeout": SECONDS, "max_output": 100}
    served_sandbox.server._answer({"id": 1, "method": "run", **asked})
    assert served_sandbox.worked
    served_sandbox.stream.setblocking(False)
    with pytest.raises(BlockingIOError):
        served_sandbox.stream.recv(1)


def test_what_works_in_the_sandbox_is_told_apart(served_sandbox: Served) -> None:
    sandbox = StreamSandbox(served_sandbox.stream)
    assert sandbox._ask("walls") == ["a wall"]
    assert not served_sandbox.worked
    sandbox.write_file("a", b"")
    assert len(served_sandbox.worked) == 1
    sandbox.close()


def test_a_client_that_does_not_read_loses_the_stream(served_sandbox: Served) -> None:
    served_sandbox.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 10_000))
    for _ in range(2):
        served_sandbox.server.send({"id": 1, "result": "x" * 2**22})
    assert served_sandbox.has_returned()


def test_a_line_that_is_too_long_ends_the_stream(served_sandbox: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_REQUEST_BYTES", 100)
    served_sandbox.stream.sendall(b'{"id": 1, "method": "walls"}\n')
    with served_sandbox.stream.makefile("rb") as answers:
        assert json.loads(answers.readline())["result"] == ["a wall"]
    served_sandbox.stream.sendall(b"x" * 200)
    assert served_sandbox.has_returned()


def test_the_client_refuses_what_is_too_long(served_sandbox: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the sandbox goes on."""
    sandbox = StreamSandbox(served_sandbox.stream)
    monkeypatch.setattr(stream_sandbox, "MAX_REQUEST_BYTES", 2**20)
    with pytest.raises(SandboxError, match="too much at once: 2 MiB as it is sent, of at most 1 MiB") as refused:
        sandbox.write_file("a", bytes(2 * 2**20))
    assert not isinstance(refused.value, SandboxLostError)
    sandbox.write_file("a", b"on")
    assert sandbox.read_file("a", 2) == b"on"
    sandbox.close()


def test_the_last_line_says_why(served_sandbox: Served) -> None:
    sandbox = StreamSandbox(served_sandbox.stream)
    served_sandbox.server.send_last("its time is over")
    served_sandbox.theirs.shutdown(socket.SHUT_RDWR)
    with pytest.raises(SandboxLostError, match="the sandbox is gone: its time is over"):
        sandbox.write_file("a", b"")


def test_the_last_line_waits_for_nobody(served_sandbox: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for an answer that is not read, nor for room in the stream."""
    monkeypatch.setattr(server, "LAST_LINE_SECONDS", 0.01)
    with served_sandbox.server._sending:
        served_sandbox.server.send_last("one")
    served_sandbox.theirs.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while served_sandbox.theirs.send(b"x" * 4096):
            pass
    served_sandbox.theirs.setblocking(True)
    served_sandbox.server.send_last("two")


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
