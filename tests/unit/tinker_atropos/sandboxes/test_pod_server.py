"""The server of a pod, as a process: its lease, its end, and that nothing is left then."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from tests.unit.tinker_atropos.sandboxes.conftest import SECONDS, carriers, eventually, in_background, shell
from tests.unit.tinker_atropos.sandboxes.pod_servers import AS_FIRST_PROCESS, OWNER, PodProcess

from tinker_atropos.sandboxes.pod_pool import PodSandbox, SandboxBusyError
from tinker_atropos.sandboxes.sandbox import Match, SandboxError, SandboxLostError
from tinker_atropos.sandboxes.sandbox_server import pod_server

StartPod = Callable[..., PodProcess]

CLIENT = """
import sys
from tinker_atropos.sandboxes.pod_pool import PodSandbox, connected
from tinker_atropos.sandboxes.sandbox import Command
sandbox = PodSandbox(connected("127.0.0.1", int(sys.argv[1])), sys.argv[2])
sandbox.run(Command("setsid sleep 1000 >/dev/null 2>&1 &", 60, {"MARK": sys.argv[3]}))
print("leased", flush=True)
sandbox.run(Command("sleep 1000", 1000, {"MARK": sys.argv[3]}))
"""
BIND = """
import socket, sys
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::")):
    for name in ("SO_REUSEADDR", "SO_REUSEPORT"):
        with socket.socket(family) as own:
            own.setsockopt(socket.SOL_SOCKET, getattr(socket, name), 1)
            try:
                own.bind((host, int(sys.argv[1])))
                own.listen()
            except OSError as error:
                print(error.strerror)
            else:
                print("listens", host, name)
"""
FORGE = """
import ctypes, errno, os
SIGTERM, SIGQUEUEINFO = 15, 129
def sent(code):
    told = (ctypes.c_int * 32)(SIGTERM, 0, code)  # as if from the process 0
    done = ctypes.CDLL(None, use_errno=True).syscall(SIGQUEUEINFO, 1, SIGTERM, told)
    print((done, os.strerror(ctypes.get_errno()) if done else ""))
sent(0)
sent(-1)
"""
"""rt_sigqueueinfo(2), by its number on x86-64."""


def why_lost(sandbox: PodSandbox, during: Callable[[], object]) -> str:
    """Of a command that hangs while something is done."""
    outcome: list[str] = []

    def hang() -> None:
        with pytest.raises(SandboxLostError) as lost:
            shell(sandbox, "sleep 1000", 1000)
        outcome.append(str(lost.value))

    thread = threading.Thread(target=hang)
    thread.start()
    during()
    thread.join(SECONDS)
    return outcome[0]


def test_a_lease_is_a_sandbox(pod: StartPod) -> None:
    served = pod(seconds=77)
    sandbox = served.leased()
    assert (sandbox.folder, sandbox.seconds, sandbox.is_lost) == (str(served.folder), 77.0, False)
    assert served.folder.stat().st_mode & 0o777 == 0o700
    assert shell(sandbox, "pwd; echo $HOME $TMPDIR").output == f"{served.folder}\n{served.folder} {served.folder}\n"
    sandbox.write_file("there/file", b"text\n")
    assert sandbox.read_file("there/file", 10) == b"text\n"
    assert sandbox.find_text("t.xt", ".", "*", 9) == [Match("there/file", 1, "text")]
    assert sandbox.find_files("*", ".", 9) == ["there/file"]
    with pytest.raises(SandboxError, match="No such file"):
        sandbox.read_file("none", 10)


def test_commands_have_the_images_variables_and_its_programs_first(
    pod: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    sandbox = pod().leased()
    assert shell(sandbox, "echo $JAVA_HOME $KUBERNETES_SERVICE_HOST").output == "/opt/java\n"
    path = shell(sandbox, "echo $PATH").output.strip()
    assert path == f"{os.environ['PATH']}:{os.path.dirname(sys.executable)}"  # noqa: PTH120


def test_there_is_one_lease(pod: StartPod) -> None:
    served = pod()
    sandbox = served.leased()
    with pytest.raises(SandboxBusyError):
        served.leased()
    assert shell(sandbox, "echo on").output == "on\n"


def test_another_run_gets_none(pod: StartPod) -> None:
    served = pod()
    with pytest.raises(SandboxLostError, match="another run"):
        served.leased("uid-of-another")
    assert shell(served.leased(), "echo on").output == "on\n"


def test_the_end_of_the_lease_is_the_end_of_all(pod: StartPod) -> None:
    served = pod()
    sandbox = served.leased()
    in_background(sandbox, "of-a-closed-pod")
    assert why_lost(sandbox, sandbox.close) == "the sandbox is gone"
    assert served.exit_code() == 0
    assert not carriers("of-a-closed-pod")


def test_a_client_that_is_killed_leaves_nothing(pod: StartPod) -> None:
    served, mark = pod(), "of-a-killed-client"
    port = str(served.address[1])
    with subprocess.Popen([sys.executable, "-c", CLIENT, port, OWNER, mark], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"leased\n"
        eventually("running", lambda: len(carriers(mark)) > 1)
        client.kill()
    assert served.exit_code() == 0
    assert not [number for number in carriers(mark) if number != client.pid]


def test_its_time_is_bounded_once_it_is_used(pod: StartPod) -> None:
    """Not while it waits, leased or not."""
    warm, leased, used = pod(seconds=0.5), pod(seconds=0.5), pod(seconds=0.5)
    waiting, sandbox = leased.leased(), used.leased()
    assert why_lost(sandbox, lambda: None) == "the sandbox is gone: its time of 0.5 s is over"
    assert used.exit_code() == 0
    assert shell(waiting, "echo on").output == "on\n"
    assert shell(warm.leased(), "echo on").output == "on\n"


def test_a_stop_ends_all(pod: StartPod) -> None:
    warm, served = pod(), pod()
    sandbox = served.leased()
    in_background(sandbox, "of-a-stopped-pod")
    assert why_lost(sandbox, served.process.terminate) == "the sandbox is gone: its pod was stopped"
    assert served.exit_code() == 0
    assert not carriers("of-a-stopped-pod")
    assert warm.told(b"\n") == b""  # it has begun, so that SIGTERM is handled
    warm.process.terminate()
    assert warm.exit_code() == 0


def test_no_command_can_pose_as_a_fresh_sandbox(pod: StartPod) -> None:
    served = pod()
    sandbox = served.leased()
    bound = shell(sandbox, f'{sys.executable} -c "$TEXT" {served.address[1]}', env_vars={"TEXT": BIND})
    assert "listens" not in bound.output
    assert bound.output.count("Address already in use") >= 4


def test_a_thread_that_fails_ends_it(pod: StartPod) -> None:
    """Nobody would know otherwise that a limit is not watched any more, or why there is no answer."""
    served = pod()
    sandbox = served.leased()
    sandbox._stream.sendall(b'{"method": "a request without an id"}\n')
    assert served.exit_code() == 1
    with pytest.raises(SandboxLostError, match="its server failed"):
        eventually("lost", lambda: shell(sandbox, "true") and None)


def test_a_server_that_cannot_begin_says_so(pod: StartPod) -> None:
    assert pod(folder="/proc/no/folder").exit_code() == 1


def test_it_listens_on_both_families() -> None:
    with pod_server._listening({"port": 0}) as listening:
        port = listening.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), 60).close()
        if socket.has_dualstack_ipv6():
            socket.create_connection(("::1", port), 60).close()


def test_commands_can_be_stopped(pod: StartPod) -> None:
    """Their server blocks SIGTERM; they do not."""
    sandbox = pod().leased()
    assert shell(sandbox, "kill -TERM $$; sleep 1000").exit_code == 143
    assert shell(sandbox, "grep SigBlk /proc/self/status").output.split() == ["SigBlk:", "0" * 16]


@pytest.fixture
def first_process(pod: StartPod) -> PodProcess:
    """One whose server is the first process of a pid namespace."""
    if subprocess.run([*AS_FIRST_PROCESS, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel does not allow pid namespaces here")
    return pod(prefix=AS_FIRST_PROCESS)


def test_no_command_can_end_the_first_process(first_process: PodProcess) -> None:
    """Neither by a signal, whatever it claims to be, nor by all of them."""
    sandbox = first_process.leased()
    assert shell(sandbox, "echo $PPID").output == "1\n"
    assert shell(sandbox, "for each in $(seq 64); do kill -$each 1 2>/dev/null; done; echo on").output == "on\n"
    forged = shell(sandbox, f'{sys.executable} -c "$TEXT"', env_vars={"TEXT": FORGE})
    assert forged.output == "(-1, 'Operation not permitted')\n(0, '')\n"
    assert shell(sandbox, "kill -KILL -1; echo on").exit_code in (0, 137)
    assert shell(sandbox, "echo on").output == "on\n"


def test_the_first_process_of_a_container_buries_all(first_process: PodProcess) -> None:
    """Also what others start in there, as kubectl exec does, while no command runs."""
    sandbox = first_process.leased()
    assert shell(sandbox, "(true &); echo on").output == "on\n"
    unshare = first_process.process.pid
    eventually("idle", lambda: len(below(unshare)) == 1)
    (server,) = below(unshare)
    enter = ["nsenter", "--pid", "--mount", "--target", str(server), "sh", "-c", "(sleep 0.1 &)"]
    subprocess.run(enter, check=True, timeout=SECONDS)
    eventually("buried", lambda: not below(server))
    in_background(sandbox, "of-a-first-process")
    os.kill(server, signal.SIGTERM)
    first_process.exit_code()
    assert not carriers("of-a-first-process")


def below(number: int) -> list[int]:
    """The children of a process, those too that have ended and are not buried."""
    with open(f"/proc/{number}/task/{number}/children", encoding="ascii") as children:  # noqa: PTH123
        return [int(each) for each in children.read().split()]
