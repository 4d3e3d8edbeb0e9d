"""`tinker-atropos environments`, as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAM = str(Path(sys.executable).with_name("tinker-atropos"))
GOOD = 'from atroposlib.envs.base import BaseEnv\nclass E(BaseEnv):\n    """Läuft."""\n'


def call(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    env_vars = {**os.environ, **variables}
    command = [PROGRAM, "environments", *map(str, arguments)]
    return subprocess.run(command, env=env_vars, capture_output=True, timeout=60, check=False)


@pytest.fixture
def good_and_bad(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(GOOD, encoding="utf-8")
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:")
    return tmp_path


def test_json_of_an_entry(good_and_bad: Path) -> None:
    done = call(
        "--path", good_and_bad, "--entry", "good.py", "-o", "json", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert list(found) == ["environments", "warnings", "problem", "modules"]
    assert (found["problem"], found["modules"], found["warnings"]) == (None, ["good.py"], [])
    [environment] = found["environments"]
    assert environment["description"] == "Läuft."
    fields = {field["name"]: field for field in environment["fields"]}
    assert fields["max_reasoning_tokens"]["minimum"] == 1024
    assert fields["eval_handling"]["choices"] == ["STOP_TRAIN", "LIMIT_TRAIN", "NONE"]
    assert set(fields["group_size"]) == {"name", "type", "default", "description"}


def test_json_of_a_problem_is_an_answer(good_and_bad: Path) -> None:
    done = call("--path", good_and_bad, "--entry", "bad.py", "-o", "json")
    assert (done.returncode, done.stderr) == (0, b"")
    problem = json.loads(done.stdout)["problem"]
    assert problem == {
        "reason": "SyntaxError",
        "file": "bad.py",
        "line": 2,
        "message": "this is not valid Python: invalid syntax",
    }


def test_people_get_a_problem_as_an_error(good_and_bad: Path) -> None:
    done = call("--path", good_and_bad, "--entry", "bad.py")
    assert done.returncode == 2
    assert done.stderr == b"error: bad.py, line 2: this is not valid Python: invalid syntax\n"


def test_a_folder_as_a_table(good_and_bad: Path) -> None:
    done = call("--path", good_and_bad)
    assert (done.returncode, done.stdout.decode()) == (0, "good  Läuft. (good.py)\n")
    assert done.stderr == b"warning: bad.py cannot be read (line 2): this is not valid Python: invalid syntax\n"


WRONG = {
    "no folder": (("--path", "nowhere"), b"--path nowhere is not a folder"),
    "an entry of nothing": (("--entry", "a.py"), b"--entry names a file of --path: give both"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_wrong_options(arguments: tuple[str, ...], message: bytes) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_names_and_texts_that_are_not_unicode(tmp_path: Path) -> None:
    name = os.fsdecode(b"odd\xff.py")
    (tmp_path / name).write_text(GOOD.replace("Läuft.", "\\ud800"), encoding="utf-8")
    done = call("--path", tmp_path, "-o", "json")
    assert done.returncode == 0
    [environment] = json.loads(done.stdout)["environments"]
    assert (environment["file_path"], environment["description"]) == ("odd?.py", "?")


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from tinker_atropos.environments.adapters.families import look; look(None, None); "
        "print(*sorted({'torch', 'transformers', 'atroposlib', 'pydantic', 'numpy', 'wandb'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
