"""The portable Python: it needs nothing of the image that it runs in but /bin/sh, and changes nothing for the rest."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tinker_atropos.sandboxes import portable_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a portable Python is for Linux")

PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
ALL_IT_HAS = """
import pathlib, sys
library = pathlib.Path(sys.prefix, sys.platlibdir, f"python{sys.version_info.major}.{sys.version_info.minor}")
for file in (library / "lib-dynload").iterdir():
    __import__(file.name.partition(".")[0])
import asyncio, ctypes, json, multiprocessing, re, subprocess, tinker_atropos.sandboxes.sandbox_server.server, unittest
"""
CODE_OUTSIDE = """
mapped = [line.split(maxsplit=5) for line in open("/proc/self/maps")]
print([path for _, mode, _, _, _, *path in mapped if "x" in mode and path and path[0][0] == "/"
       and not path[0].startswith(sys.prefix + "/")])
"""
WHERE = "import sys; print(sys.executable, sys.prefix, sys.exec_prefix, sep='\\n')"
ITSELF_AGAIN = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WHERE!r}], check=True)"
OWN_NAME = "import ctypes; name = b'renamed'; print(ctypes.CDLL(None).prctl(15, name), open('/proc/self/comm').read())"
THREAD_AT_THE_END = """
import threading, time
class Last:
    def __del__(self, sleep=time.sleep):  # the interpreter has ended for threads, which end themselves meanwhile
        sleep(0.1)
threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)], daemon=True).start()
last = Last()
"""
TOLD_BY_SERVER = """
import json, os, sys
def main():
    flags = [sys.flags.isolated, sys.flags.no_site, sys.flags.dont_write_bytecode]
    print(json.dumps([os.getpid(), sys.argv[1:], sys.executable, flags]))
"""
SANDBOX = """
from tinker_atropos.sandboxes.local_pool import LocalSandbox
from tinker_atropos.sandboxes.sandbox import Command, SandboxLimits
sandbox = LocalSandbox(SandboxLimits(network=True), plain=True)
sandbox.write_file("a.txt", b"3")
ended = sandbox.run(Command("cat a.txt; exit 2", 60))
print(ended.output, ended.exit_code, sandbox.find_files("*", "", 9))
sandbox.close()
"""


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", portable_python.__name__, folder]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def output(*program: str | Path, **options: Any) -> str:
    """Of a program that succeeds and complains about nothing."""
    done = subprocess.run(program, capture_output=True, text=True, check=False, **{"env": {}, **options})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def portable_folder(process: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read-only to its tests. A space in its name is the worst that scripts can meet."""
    path = tmp_path_factory.mktemp("portable") / "rl tools"
    done = build(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return path


@pytest.fixture
def copy(portable_folder: Path, tmp_path: Path) -> Path:
    """The same files in another place."""
    return Path(shutil.copytree(portable_folder, tmp_path / "root/rl-tools", copy_function=os.link))


@pytest.mark.parametrize("code", [WHERE, ITSELF_AGAIN], ids=["itself", "what it starts"])
def test_it_finds_itself_in_its_folder(portable_folder: Path, code: str) -> None:
    python = portable_folder / "bin/python3"
    expected = f"{python}\n{portable_folder}\n{portable_folder}\n"
    assert output(python, "-c", code) == expected
    assert output("bin/python3", "-I", "-S", "-c", code, cwd=portable_folder, env={"CDPATH": "/"}) == expected


def test_links_lead_to_it(portable_folder: Path, tmp_path: Path) -> None:
    """Links to it, to its folder, to links."""
    (tmp_path / "bin").symlink_to(portable_folder / "bin")
    (tmp_path / "link").symlink_to(tmp_path / "bin/python3")
    (tmp_path / "python3").symlink_to("link")
    for each in ("bin/python3", "link", "python3"):
        found = output(tmp_path / each, "-c", WHERE, env=PATH)
        assert found == f"{portable_folder / 'bin/python3'}\n{portable_folder}\n{portable_folder}\n"


def test_virtual_environments_can_be_made_of_it(portable_folder: Path, tmp_path: Path) -> None:
    output(portable_folder / "bin/python3", "-m", "venv", "--without-pip", tmp_path, env=PATH)
    for each in (tmp_path / "bin/python", "bin/python"):
        found = output(each, "-c", WHERE + "; import json", cwd=tmp_path, env=PATH)
        assert found == f"{tmp_path / 'bin/python'}\n{tmp_path}\n{tmp_path}\n"


def test_no_code_is_from_outside_of_the_folder(portable_folder: Path) -> None:
    """Whatever the image tells programs to load first."""
    system_libc = re.search(r"(/\S*libc\S*\.so\S*)$", Path("/proc/self/maps").read_text(encoding="utf-8"), re.MULTILINE)
    env_vars = {"LD_PRELOAD": system_libc[1], "LD_LIBRARY_PATH": str(Path(system_libc[1]).parent)}
    assert (
        output(
            portable_folder / "bin/python3", "-I", "-S", "-W", "ignore", "-c", ALL_IT_HAS + CODE_OUTSIDE, env=env_vars
        )
        == "[]\n"
    )


def test_programs_that_it_starts_have_the_libraries_of_the_image(portable_folder: Path) -> None:
    code = "import subprocess; subprocess.run('echo \"[$LD_LIBRARY_PATH]\"; cat /proc/self/maps', shell=True)"
    for path in ("", "/usr/local/lib"):
        told = output(portable_folder / "bin/python3", "-c", code, env={"LD_LIBRARY_PATH": path, **PATH})
        assert told.startswith(f"[{path}]\n")
        assert str(portable_folder) not in told


def test_system_calls_and_ends_of_threads_work(portable_folder: Path) -> None:
    assert output(portable_folder / "bin/python3", "-I", "-S", "-c", OWN_NAME) == "0 renamed\n\n"
    assert output(portable_folder / "bin/python3", "-I", "-S", "-c", THREAD_AT_THE_END) == ""


def test_it_runs_where_there_is_nothing_but_a_shell(copy: Path) -> None:
    """In a root of its own, with the libraries of the shell and no others."""
    root = copy.parent
    as_root = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    if subprocess.run([*as_root, "chroot", "/", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user may change the root folder here")
    for file in ("/bin/sh", *re.findall(r"(/\S+) \(0x", output("ldd", "/bin/sh", env=PATH))):
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file[1:])
    (root / "tmp").mkdir()
    python = [*as_root, "chroot", root, "/rl-tools/bin/python3", "-I", "-S", "-W", "ignore", "-c"]
    assert output(*python, ALL_IT_HAS + ITSELF_AGAIN, env=PATH) == "/rl-tools/bin/python3\n/rl-tools\n/rl-tools\n"
    assert output(*python, "import subprocess; subprocess.run('echo $0', shell=True)", env=PATH) == "/bin/sh\n"
    assert output(*python, THREAD_AT_THE_END, env=PATH) == ""


def test_the_server_is_the_process_that_was_started(copy: Path) -> None:
    """A container ends with its process 1, and signals go there."""
    [package] = copy.glob("lib*/python*/tinker_atropos/sandboxes/sandbox_server")
    (package / "pod_server.py").write_text(TOLD_BY_SERVER, encoding="utf-8")  # it is found before bytecode
    with subprocess.Popen([copy / "bin/sandbox-server", '{"a": "b c"}'], stdout=subprocess.PIPE, env={}) as server:
        told = json.load(server.stdout)
    assert told == [server.pid, ['{"a": "b c"}'], str(copy / "bin/python3"), [1, 1, 1]]


def test_the_tool_server_works_in_it(portable_folder: Path) -> None:
    """A search starts a Python of its own."""
    sources = str(Path(portable_python.__file__).parents[2])
    assert (
        output(portable_folder / "bin/python3", "-c", SANDBOX, env={**PATH, "PYTHONPATH": sources}) == "3 2 ['a.txt']\n"
    )


def test_its_files_do_not_depend_on_when_and_where_it_was_made(portable_folder: Path) -> None:
    """So that the same sources make the same layer of an image."""
    compiled = list(portable_folder.rglob("*.pyc"))
    assert {path.read_bytes()[4:8] for path in compiled} == {b"\x01\0\0\0"}  # found by a hash that is not checked
    assert {path.stat().st_mtime for path in (portable_folder, *portable_folder.rglob("*"))} == {0}
    assert not any(os.fsencode(portable_folder) in path.read_bytes() for path in compiled)
    assert not any(path.is_symlink() for path in portable_folder.rglob("*"))  # `cp -r` may follow them, or not


def test_what_cannot_work_is_refused_in_a_sentence(portable_folder: Path, tmp_path: Path) -> None:
    for path in (portable_folder, portable_folder / "bin/python3"):
        assert (build(path).returncode, build(path).stderr) == (1, f"{path} is not an empty folder\n")
    from_itself = [portable_folder / "bin/python3", "-I", "-S", Path(portable_python.__file__), tmp_path / "new"]
    done = subprocess.run(from_itself, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "it has no loader that could be copied" in done.stderr
    assert not (tmp_path / "new").exists()
