"""What a hostile command cannot do; each assertion where the kernel allows its wall."""

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.tinker_atropos.sandboxes.conftest import need, shell

from tinker_atropos.sandboxes.local_pool import LocalSandbox
from tinker_atropos.sandboxes.sandbox_server import walls

CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); print('connected')"
LOOPBACK = (
    "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('ok')"
)


@pytest.fixture(scope="module")
def walled(start: Callable[..., LocalSandbox]) -> LocalSandbox:
    return start()


@pytest.fixture
def listening_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def python(sandbox: LocalSandbox, text: str, *arguments: object) -> str:
    words = " ".join(map(str, arguments))
    return shell(sandbox, f'{sys.executable} -c "$TEXT" {words} 2>&1', env_vars={"TEXT": text}).output


def test_all_walls_stand_or_none_of_the_namespaces(walled: LocalSandbox, start: Callable[..., LocalSandbox]) -> None:
    """What stands is told; `plain` has what needs no namespace."""
    assert set(start(plain=True).walls) <= {walls.NO_CAPABILITIES}
    assert walls.NO_CAPABILITIES in walled.walls or sys.platform != "linux"


def test_no_program_has_capabilities(walled: LocalSandbox, start: Callable[..., LocalSandbox]) -> None:
    for sandbox in (walled, start(plain=True)):
        need(sandbox, walls.NO_CAPABILITIES)
        status = shell(sandbox, "grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status").output.split()
        assert status[1::2] == ["0" * 16, "0" * 16, "1"]


def test_no_namespace_can_be_made_inside(walled: LocalSandbox) -> None:
    """In one, root may mount file systems in memory that have no limit."""
    need(walled, walls.PROC)
    assert shell(walled, "unshare -Ur true").exit_code != 0


def test_files_outside_are_read_only(walled: LocalSandbox, tmp_path_factory: pytest.TempPathFactory) -> None:
    need(walled, walls.READ_ONLY)
    written = Path(__file__).with_name("written-by-a-sandbox")
    for path in (written, "/etc/written-by-a-sandbox", "/written-by-a-sandbox", "/dev/written-by-a-sandbox"):
        assert shell(walled, f"echo > {path}").exit_code != 0
    assert not written.exists()
    assert shell(walled, "mount -o remount,rw / || mount -t tmpfs none /mnt || umount /tmp").exit_code != 0
    assert shell(walled, "echo on > /tmp/file && cat /tmp/file && test -s /tmp/file").output == "on\n"


def test_temporary_files_of_others_are_hidden(walled: LocalSandbox) -> None:
    need(walled, walls.FOLDER)
    if shell(walled, f"ls -A {tempfile.gettempdir()}").output.split() != [Path(walled.folder).name]:
        pytest.skip("this Python lies among the temporary files, which therefore cannot be hidden")
    with tempfile.NamedTemporaryFile() as secret:
        assert shell(walled, f"cat {secret.name}").exit_code != 0


def test_sandboxes_do_not_see_each_other(walled: LocalSandbox, start: Callable[..., LocalSandbox]) -> None:
    need(walled, walls.FOLDER)
    other = start()
    other.write_file("secret", b"secret")
    assert shell(walled, f"cat {other.folder}/secret").exit_code != 0
    assert shell(walled, f"ls -A {other.folder}").output.count("secret") == 0
    need(walled, walls.PROC)
    assert shell(other, "exec 3>&1; sleep 1000 >/dev/null 2>&1 3>&1 & echo $!").exit_code == 0
    numbers = shell(walled, "for each in /proc/[0-9]*; do cat $each/cmdline 2>/dev/null | tr '\\0' ' '; done").output
    assert "sleep" not in numbers


def test_its_server_cannot_be_looked_into(sandbox: LocalSandbox) -> None:
    """A command that traces the server, or takes its socket, could answer in its name."""
    parent = "$(ps -o ppid= $$ 2>/dev/null || grep PPid /proc/self/status | cut -f2)"
    assert shell(sandbox, f"for pid in $PPID {parent}; do readlink /proc/$pid/fd/0; done 2>/dev/null").output == ""
    assert shell(sandbox, "cat /proc/$PPID/environ").exit_code != 0
    assert shell(sandbox, "head -c 1 /proc/$PPID/mem").exit_code != 0


def test_kernel_settings_cannot_be_written(walled: LocalSandbox) -> None:
    """Root could, without any capability: they have an owner."""
    need(walled, walls.PROC)
    assert shell(walled, "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern").exit_code != 0


def test_devices_are_those_that_any_program_may_use(walled: LocalSandbox) -> None:
    need(walled, walls.DEVICES)
    assert shell(walled, "find /dev -type b | wc -l").output == "0\n"
    assert shell(walled, "echo > /dev/null && head -c 3 /dev/urandom | wc -c").output == "3\n"
    assert python(walled, "import multiprocessing; multiprocessing.Lock(); print('ok')") == "ok\n"


def test_there_is_no_network_but_loopback(walled: LocalSandbox, listening_port: int) -> None:
    need(walled, walls.NO_NETWORK)
    assert "ConnectionRefusedError" in python(walled, CONNECT, listening_port)
    assert python(walled, LOOPBACK) == "ok\n"


def test_a_network_is_a_choice(start: Callable[..., LocalSandbox], listening_port: int) -> None:
    sandbox = start(network=True)
    assert walls.NO_NETWORK not in sandbox.walls
    assert python(sandbox, CONNECT, listening_port) == "connected\n"


def test_a_socket_of_the_machine_cannot_be_reached(walled: LocalSandbox) -> None:
    """Neither an abstract one, nor one in the folder of temporary files."""
    need(walled, walls.NO_NETWORK)
    name = f"\0rl-sandbox-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        text = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r}); print('connected')"
        assert "ConnectionRefusedError" in python(walled, text)
