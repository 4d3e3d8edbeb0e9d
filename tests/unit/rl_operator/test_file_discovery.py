"""User files, read by a process that may be killed: real programs, well-behaved and not."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.reader_processes import gone

from rl_operator.api.catalog import Catalog
from rl_operator.file_discovery import Ended, discover_files, run_limited
from rl_operator.operator_errors import OperatorError

pytestmark = pytest.mark.process

PLAIN = Path("tests/data/environments/plain_tools.py").read_text(encoding="utf-8")


def discover(files: Mapping[str, str], entry: str | None, *, program: str | None = None) -> Catalog:
    return asyncio.run(discover_files(files, entry, program=program))


@pytest.fixture
def write_program(tmp_path: Path) -> Callable[[str], str]:
    def write(body: str) -> str:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_an_environment_and_its_fields() -> None:
    catalog = discover({"env.py": f"from lib import x\n{PLAIN}", "lib.py": "x = 1", "words.txt": "é"}, "env.py")
    assert (catalog.problem, catalog.warnings, catalog.modules) == (None, (), ("env.py", "lib.py"))
    [environment] = catalog.environments
    assert (environment.class_name, environment.file_path) == ("PlainTools", "env.py")
    fields = environment.fields_by_name
    assert fields["max_token_length"].default == 16384
    assert fields["max_reasoning_tokens"].maximum == 32000
    assert fields["eval_handling"].choices == ("STOP_TRAIN", "LIMIT_TRAIN", "NONE")


def test_a_broken_file_is_named_with_its_line() -> None:
    problem = discover({"env.py": "x = 1\ndef f(:"}, None).problem
    assert problem.sentence == "env.py, line 2: this is not valid Python: invalid syntax"


def test_names_are_refused_before_any_program_starts() -> None:
    problem = discover({"../env.py": PLAIN}, None, program="/nowhere").problem
    assert problem.reason == "Unreadable"


def test_the_files_code_is_not_run(tmp_path: Path) -> None:
    """Neither the entry's, nor that of a file named like a module that the reader imports (which is refused)."""
    marks = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    files = dict.fromkeys(("typer.py", "ast.py", "json.py", "sitecustomize.py", "tinker_atropos.py"), marks)
    catalog = discover({**files, "env.py": marks + PLAIN}, "env.py")
    assert catalog.problem.reason == "NotImportable"
    assert not (tmp_path / "ran").exists()


def test_keys_and_folders_of_the_caller_do_not_reach_the_program(
    write_program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
    monkeypatch.setenv("HOME", "/home/somebody")
    told = """printf '{"warnings": ["%s"]}' "$(env | grep -E 'KEY|HOME|TOKEN' | tr -d '\\n')" """
    assert discover({"env.py": ""}, None, program=write_program(told)).warnings == ("",)


def test_the_files_are_gone_afterwards(write_program: Callable[[str], str]) -> None:
    catalog = discover(
        {"env.py": "", "b.py": ""}, "b.py", program=write_program("""printf '{"modules": ["%s", "%s"]}' "$3" "$5" """)
    )
    folder, entry = catalog.modules
    assert entry == "b.py"
    assert not Path(folder).exists()


MISBEHAVING = {
    "it crashes": ("kill -SEGV $$", "the reader ended with signal 11"),
    "it fails": ("echo one >&2; echo two >&2; exit 1", "the reader ended with code 1: two"),
    "it is no program": ("exec /nowhere/at/all", "the reader ended with code 127"),
    "it says nothing": ("exit 0", "the reader's answer is not a catalog"),
    "it says something else": ("echo hello", "the reader's answer is not a catalog"),
    "it says too much": ("exec head -c 9000000 /dev/zero", "the reader ended with signal 25"),
    "it wants too much memory": (
        "exec python3 -c 'x = bytearray(3 * 2**30)'",
        "took more than 192 MiB of memory",
    ),
}


@pytest.mark.parametrize(("body", "message"), MISBEHAVING.values(), ids=MISBEHAVING)
def test_a_misbehaving_program_is_a_problem_of_the_file(
    write_program: Callable[[str], str], body: str, message: str
) -> None:
    problem = discover({"env.py": ""}, None, program=write_program(body)).problem
    assert (problem.reason, problem.file) == ("Unreadable", "env.py")
    assert message in problem.message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([{"name": f"f{n}", "type": "int"} for n in range(300)], "its config is too large: it has 300 fields"),
        ([{"name": "a", "type": "list", "default": [1] * 2_000}], "field 'a' is too large: it has 2000 entries"),
    ],
)
def test_a_config_that_no_status_holds_is_a_problem_of_the_file(
    write_program: Callable[[str], str], tmp_path: Path, fields: list[dict[str, Any]], message: str
) -> None:
    (tmp_path / "answer").write_text(json.dumps({"environments": [{"name": "env", "fields": fields}]}))
    catalog = discover({"env.py": PLAIN}, None, program=write_program(f"cat {tmp_path / 'answer'}"))
    assert message in catalog.problem.message


async def test_a_caller_that_gives_up_leaves_no_process(write_program: Callable[[str], str], tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    task = asyncio.create_task(
        discover_files({"env.py": ""}, None, program=write_program(f"echo $$ > {pid}; exec sleep 600"))
    )
    give_up_at = time.monotonic() + 20
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < give_up_at:
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(int(pid.read_text()))


def test_a_program_without_entries_must_be_upgraded(write_program: Callable[[str], str]) -> None:
    with pytest.raises(OperatorError, match=r"No such option: --entry.*upgrade it"):
        discover({"env.py": ""}, None, program=write_program("echo 'No such option: --entry' >&2; exit 2"))


def run(arguments: Sequence[str], folder: Path, timeout: float) -> Ended:
    return asyncio.run(run_limited(arguments, folder, os.environ, timeout))


def test_its_output(tmp_path: Path) -> None:
    ended = run(["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path, 20)
    assert ended == Ended(3, b"out\n", "err", 20)
    assert ended.reason == "the reader ended with code 3: err"


def test_its_limits(tmp_path: Path) -> None:
    kinds = "r.RLIMIT_CORE, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_AS"
    code = f"import resource as r; print(*(r.getrlimit(kind) for kind in ({kinds})))"
    ended = run([sys.executable, "-c", code], tmp_path, 20)
    assert ended.output.decode().strip() == "(0, 0) (10, 10) (4194304, 4194304) (201326592, 201326592)"


def test_a_hanging_program_is_killed_with_its_children(tmp_path: Path) -> None:
    before = time.monotonic()
    ended = run(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait"], tmp_path, 1.5)
    assert time.monotonic() - before < 20
    assert (ended.code, ended.reason) == (None, "that took longer than 1.5 s")
    assert gone(int((tmp_path / "pid").read_text()))


def test_an_endless_loop_is_killed(tmp_path: Path) -> None:
    """The limit is the kernel's: here the signal is sent right away."""
    ended = run(["sh", "-c", "kill -XCPU $$"], tmp_path, 20)
    assert ended.code == -signal.SIGXCPU
    assert ended.reason == "that took more than 10 s of CPU time"
