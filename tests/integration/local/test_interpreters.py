"""Environments with packages of their own: installed once, used by runs, removed. Real programs, and no index."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.local.conftest import Rlctl, end_everything
from tests.integration.local.homes import Home, make_home
from tests.integration.local.sorting_down import REWARDS, entry
from tests.tiny_packages import BACKEND, make_package

from rl_operator.local.interpreters.interpreter import Interpreter

nightly = pytest.mark.nightly("operator/src/rl_operator/local/interpreters")

SHORT = {"total_steps": 2, "steps_per_eval": 100, "eval_items": 8}
PATIENCE_SECONDS = 60.0

BLOCKED = BACKEND.replace(
    "def build_wheel(folder, config_settings=None, metadata_directory=None):",
    """def build_wheel(folder, config_settings=None, metadata_directory=None):
    import os

    (HERE / "started").write_text(str(os.getpid()))
    (HERE / "go").read_text()  # a pipe: nothing comes before the test writes""",
)


@pytest.fixture
def home(process: None, tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", tmp_path / "source")


@pytest.fixture
def rlctl(home: Home, tmp_path: Path) -> Iterator[Rlctl]:
    """Of that home, with an empty state folder."""
    root = tmp_path / "state"
    root.mkdir()
    yield Rlctl(root, home.rlctl)
    end_everything(root)


@pytest.fixture
def taskset(tmp_path: Path) -> Path:
    return make_package(tmp_path / "echo", "taskset-echo", {"taskset_echo.py": ""})


def until(holds: Callable[[], object], awaited: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS} s for {awaited}"
        time.sleep(0.02)


def is_being_built(interpreter: Interpreter) -> bool:
    with interpreter.alone() as alone:
        return not alone


def verifiers_of(rlctl: Rlctl) -> Interpreter:
    return Interpreter(rlctl.layout.interpreters / "verifiers")


@nightly
def test_a_library_is_installed_once_and_packages_are_added(rlctl: Rlctl, taskset: Path, tmp_path: Path) -> None:
    first = rlctl("environments", "install", "verifiers")
    assert first.returncode == 0, first.stderr
    assert "Installing verifiers" in first.stderr
    assert "making a virtual environment" in first.stderr
    before = verifiers_of(rlctl).marker
    again = rlctl("environments", "install", "verifiers")
    assert "nothing to do" in again.stdout
    assert verifiers_of(rlctl).marker == before

    more = rlctl("environments", "install", "verifiers", str(taskset))
    assert more.returncode == 0, more.stderr
    assert "nothing to do" in rlctl("environments", "install", "verifiers").stdout
    assert "nothing to do" in rlctl("environments", "install", "verifiers", str(taskset)).stdout
    assert "verifiers/echo" in rlctl("environments", "verifiers", "--local").stdout
    # A folder is used where it is, and what is edited there shows.
    (taskset / "taskset_shout.py").write_text("")
    assert "verifiers/shout" in rlctl("environments", "verifiers", "--local").stdout
    assert "verifiers/shout" in rlctl("environments", "show", "verifiers/shout", "--local").stdout

    listed = json.loads(rlctl("environments", "installed", "-o", "json").stdout)["interpreters"]
    assert [(each["name"], each["packages"]) for each in listed] == [("verifiers", [str(taskset)])]
    assert rlctl("environments", "uninstall", "verifiers").returncode == 0
    assert not verifiers_of(rlctl).folder.exists()
    assert rlctl("environments", "uninstall", "verifiers").returncode == 2


@nightly
def test_a_package_that_does_not_exist_changes_nothing(rlctl: Rlctl, tmp_path: Path) -> None:
    assert rlctl("environments", "install", "verifiers").returncode == 0
    before = verifiers_of(rlctl).marker
    empty = tmp_path / "index"
    empty.mkdir()
    offline = {"UV_OFFLINE": "1"}
    failed = rlctl("environments", "install", "verifiers", "no-such-package-anywhere", **offline)
    assert failed.returncode == 2
    assert "no-such-package-anywhere" in failed.stderr.partition("Its last lines:")[2]
    assert "nothing was changed" in failed.stderr
    assert verifiers_of(rlctl).marker == before
    assert len(verifiers_of(rlctl).builds()) == 1
    folder = rlctl("environments", "install", "verifiers", "./nowhere")
    assert (folder.returncode, "no folder or file ./nowhere" in folder.stderr) == (2, True)


def test_an_unknown_library_is_refused_with_those_that_there_are(rlctl: Rlctl) -> None:
    refused = rlctl("environments", "install", "nemo")
    assert (refused.returncode, "there is: verifiers" in refused.stderr) == (2, True)


@nightly
def test_without_the_library_a_run_is_refused_with_the_command(
    rlctl: Rlctl, write_run: Callable[..., str], home: Home, taskset: Path
) -> None:
    file = write_run("echo", environment="verifiers/echo", config=SHORT)
    refused = rlctl("validate", file, "--local")
    assert refused.returncode == 2
    assert "rlctl environments install verifiers" in refused.stdout + refused.stderr
    assert rlctl("environments", "install", "verifiers", str(taskset)).returncode == 0
    assert rlctl("validate", file, "--local").returncode == 0
    # Another tinker-atropos since: it is made again, with the same packages.
    home.says_version("0.2.0")
    outdated = rlctl("validate", file, "--local")
    assert outdated.returncode == 2
    assert "was made for tinker-atropos 0.1.0" in outdated.stdout + outdated.stderr
    assert rlctl("environments", "install", "verifiers").returncode == 0
    assert rlctl("validate", file, "--local").returncode == 0


@nightly
def test_a_run_plays_an_environment_of_the_library(rlctl: Rlctl, write_run: Callable[..., str], taskset: Path) -> None:
    assert rlctl("environments", "install", "verifiers", str(taskset)).returncode == 0
    ended = rlctl("run", write_run("echo", environment="verifiers/echo", config=SHORT), "--local")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [note] = rlctl.layout.root.glob("pods/default/*/running/environment.interpreter")
    marker = verifiers_of(rlctl).marker
    assert marker is not None
    assert note.read_text() == str(verifiers_of(rlctl).build_folder(marker))


@nightly
def test_what_a_requirements_file_lists_is_installed_before_the_run(
    rlctl: Rlctl, write_run: Callable[..., str], tmp_path: Path
) -> None:
    rewards = make_package(tmp_path / "rewards", "digit-rewards", {"digit_rewards.py": REWARDS})
    (tmp_path / "sort_down.py").write_text(entry("digit_rewards"))
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("no-such-package-anywhere\n")
    file = write_run("down", environment="./sort_down.py", config=SHORT)
    offline = {"UV_OFFLINE": "1"}
    failed = rlctl("run", file, "--local", **offline)
    assert failed.returncode == 2
    assert "no-such-package-anywhere" in failed.stderr
    assert rlctl.store.get("RLTrainingRun", "default", "down") is None

    requirements.write_text(f"# what scores\ndigit-rewards @ {rewards.as_uri()}\n")
    ended = rlctl("run", file, "--local")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Installing the requirements.txt of ./sort_down.py" in ended.stderr
    again = rlctl("environments", "install", "sort_down.py", "--state-dir", str(rlctl.root))
    assert again.returncode == 2  # relative to the folder of the call
    assert "nothing to do" in rlctl("environments", "install", str(tmp_path / "sort_down.py")).stdout


@nightly
def test_a_draft_whose_requirements_are_gone_gets_them_when_it_is_resumed(
    rlctl: Rlctl, write_run: Callable[..., str], tmp_path: Path
) -> None:
    rewards = make_package(tmp_path / "rewards", "digit-rewards", {"digit_rewards.py": REWARDS})
    (tmp_path / "sort_down.py").write_text(entry("digit_rewards"))
    (tmp_path / "requirements.txt").write_text(f"digit-rewards @ {rewards.as_uri()}\n")
    file = write_run("draft", environment="./sort_down.py", config=SHORT, suspend=True)
    assert rlctl("run", file, "--local", "--detach").returncode == 0
    assert not list(rlctl.layout.interpreters.glob("*"))
    resumed = rlctl("resume", "draft", "--local")
    assert resumed.returncode == 0, resumed.stderr
    [found] = json.loads(rlctl("environments", "installed", "-o", "json").stdout)["interpreters"]
    assert found["name"].startswith("requirements-")
    rlctl("delete", "draft", "--local")


@pytest.fixture
def slow_package(tmp_path: Path) -> Path:
    """One whose build waits until something is written into its `go`."""
    folder = make_package(tmp_path / "slow", "slow-package", {"slow.py": ""}, backend=BLOCKED)
    os.mkfifo(folder / "go")
    return folder


@nightly
def test_a_killed_install_counts_for_nothing(rlctl: Rlctl, slow_package: Path, tmp_path: Path) -> None:
    reference = f"slow-package @ {slow_package.as_uri()}"
    install = rlctl.start("environments", "install", "verifiers", reference)
    until((slow_package / "started").exists, "the build to start")
    install.kill()
    install.communicate()
    assert verifiers_of(rlctl).marker is None
    assert "rlctl environments install verifiers" in rlctl("environments", "--local", "-o", "wide").stdout
    assert is_being_built(verifiers_of(rlctl))  # uv is still at it
    os.kill(int((slow_package / "started").read_text()), signal.SIGKILL)
    until(lambda: not is_being_built(verifiers_of(rlctl)), "the orphan to end")
    assert rlctl("environments", "install", "verifiers").returncode == 0
    assert len(verifiers_of(rlctl).builds()) == 1


@nightly
def test_the_second_of_two_installs_waits_for_the_first(rlctl: Rlctl, slow_package: Path) -> None:
    call = ("environments", "install", "verifiers", f"slow-package @ {slow_package.as_uri()}")
    first = rlctl.start(*call)
    until((slow_package / "started").exists, "the build to start")
    second = rlctl.start(*call)
    assert second.stderr is not None
    lines = iter(second.stderr.readline, "")
    assert any(f"process {first.pid} is installing verifiers" in line for line in lines)
    (slow_package / "go").write_text("go")
    out, err = first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == 0, out + err
    assert "nothing to do" in second.communicate(timeout=PATIENCE_SECONDS)[0]


@nightly
def test_a_library_that_a_run_uses_is_not_removed(rlctl: Rlctl, write_run: Callable[..., str], taskset: Path) -> None:
    assert rlctl("environments", "install", "verifiers", str(taskset)).returncode == 0
    file = write_run("long", environment="verifiers/echo", config={**SHORT, "total_steps": 2000})
    started: subprocess.CompletedProcess[str] = rlctl("run", file, "--local", "--detach")
    assert started.returncode == 0, started.stderr
    rlctl.wait_for("long", lambda status: status.get("phase") == "Running", "the run to train")
    refused = rlctl("environments", "uninstall", "verifiers")
    assert (refused.returncode, "a run trains with verifiers now" in refused.stderr) == (2, True)
    rlctl("delete", "long", "--local")
    assert rlctl("environments", "uninstall", "verifiers").returncode == 0
