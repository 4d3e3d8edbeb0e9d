"""The pages' way on one machine, typed as it stands there. What trains for 40 steps there trains for two here."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.documented import ROOT, Command, commands_of
from tests.integration.local.conftest import DEADLINE_SECONDS, Rlctl

README = commands_of("README.md", after="## On your machine", before="## On a cluster")
TUTORIAL = commands_of("docs/tutorial/laptop.md")

NOT_HERE = {
    "make test": "this is it",
    ". .venv/bin/activate": "PATH is set",
    "rlctl ui --local": "it serves until Ctrl-C; tests/integration/local/test_ui.py starts it",
    "rlctl watch NAME --local": "`rlctl run` of a run that is there follows it in the same way",
}
INSTEAD = {
    "make demo": "rlctl run examples/sorting.yaml --local",
    "rlctl run mine/run.yaml --local": "rlctl validate mine/run.yaml --local",
}
"""What the Makefile does, without setting up; and test_own_environments.py trains on a file of one's own."""

PLACEHOLDERS = {"NAME": "sorting", "FILE": "examples/sorting.yaml", "DIR": "adapter"}

SAID = {
    "rlctl run mine/run.yaml --local": "is accepted by runtime tiny",
    "make demo": "trained sort_digits for 2 steps",
    "rlctl validate run.yaml --local": "did you mean 'group_size'?",
}
REFUSED = {"rlctl validate run.yaml --local": 2}
"""Exit codes other than 0."""


@pytest.fixture(scope="module")
def examples_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples, with runs of two steps."""
    folder = tmp_path_factory.mktemp("documented")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for file in (folder / "examples").rglob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r"total_steps: \d+", "total_steps: 2", text), encoding="utf-8")
    return folder


def test_the_makefile_demonstrates_what_the_pages_say() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\ndemo: $(VENV)/runtime ## Train" in makefile
    assert f"\t@$(BIN)/{INSTEAD['make demo']}\n" in makefile


def test_the_tutorial_leads_to_a_trained_model(shared_rlctl: Rlctl, examples_folder: Path) -> None:
    """What README starts and leaves alone is what the tutorial's first command follows to its end."""
    [detached] = (command for command in README if command.text.endswith("--detach"))
    for command in (detached, *TUTORIAL):
        if command.text.startswith("rlctl validate run.yaml"):  # as the page says before it
            file = examples_folder / "run.yaml"
            file.write_text(file.read_text().replace("\n  config:\n", "\n  config:\n    group_sise: 16\n"))
        _type(shared_rlctl, examples_folder, command)


def test_the_list_of_commands(shared_rlctl: Rlctl, examples_folder: Path) -> None:
    typed = {INSTEAD.get(command.text, command.text) for command in TUTORIAL}
    for command in README:
        if _filled_in(command) not in typed and not command.text.endswith("--detach"):
            _type(shared_rlctl, examples_folder, command)
    assert (examples_folder / "adapter" / "adapter_config.json").is_file()


def _filled_in(command: Command) -> str:
    text = INSTEAD.get(command.text, command.text)
    return re.sub(r"\b(NAME|FILE|DIR)\b", lambda match: PLACEHOLDERS[match[0]], text)


def _type(rlctl: Rlctl, folder: Path, command: Command) -> None:
    if command.text in NOT_HERE:
        return
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", "-c", _filled_in(command)], cwd=folder, env={**rlctl.env_vars, "PATH": path},
        capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    printed = ended.stdout + ended.stderr
    assert ended.returncode == REFUSED.get(command.text, 0), f"{command}: {printed}"
    assert SAID.get(command.text, "") in printed, f"{command}: {printed}"
