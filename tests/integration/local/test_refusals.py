"""Bad input: exit code 2 and a sentence that teaches, and the run's status says it too."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.local.conftest import Rlctl

WriteRun = Callable[..., str]


@pytest.mark.parametrize(
    ("spec", "refusal", "said"),
    [
        pytest.param({"config": {"tokenizer_name": "gpt2"}}, "LockedField: spec.config.tokenizer_name", "bundled"),
        pytest.param({"config": {"rollout_server_url": "http://x"}}, "WiredField: spec.config.rollout_server_url", ""),
        pytest.param({"config": {"group_sise": 8}}, "UnknownField: spec.config.group_sise", "'group_size'"),
        pytest.param({"config": {"group_size": "eight"}}, "WrongType: spec.config.group_size", "whole number"),
        pytest.param({"environment": "sort_digit"}, "UnknownEnvironment: spec.environment", "sort_digits"),
        pytest.param({"runtime": "tony"}, "RuntimeNotFound: spec.runtime", "tiny"),
    ],
)
def test_a_refused_run(rlctl: Rlctl, write_run: WriteRun, spec: dict[str, Any], refusal: str, said: str) -> None:
    file = write_run("refused", **spec)
    ended = rlctl("run", file, "--local")
    assert ended.returncode == 2, ended
    assert refusal in ended.stderr
    assert said in ended.stderr
    status = rlctl.status("refused")
    assert status["phase"] == "Pending"
    assert status["refusals"][0]["code"] == refusal.partition(":")[0]
    assert {c["type"]: c["status"] for c in status["conditions"]} == {"Accepted": "False", "Stalled": "True"}
    assert "startTime" not in status
    rlctl.until_unsupervised("refused")
    checked = rlctl("validate", file, "--local")
    assert checked.returncode == 2
    assert f"error: {refusal}" in checked.stderr


def test_a_refused_run_starts_once_its_file_is_mended(rlctl: Rlctl, write_run: WriteRun) -> None:
    assert rlctl("run", write_run("mended", runtime="tony"), "--local").returncode == 2
    again = rlctl("run", write_run("mended", suspend=True), "--local")
    assert again.returncode == 0, again
    assert "has not started: it takes this file's spec" in again.stderr
    assert rlctl.status("mended")["phase"] == "Stopped"
    assert rlctl.status("mended")["message"].startswith("A draft")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: [", "this is not readable YAML", id="not YAML"),
        pytest.param("just words", "this is no Kubernetes object", id="no mapping"),
        pytest.param("kind: ConfigMap\napiVersion: v1\n", "exactly one RLTrainingRun", id="no run"),
        pytest.param("", "exactly one RLTrainingRun", id="empty"),
    ],
)
def test_a_file_without_a_run(rlctl: Rlctl, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    for verb in ("run", "validate", "render"):
        ended = rlctl(verb, str(file), "--local")
        assert ended.returncode == 2, ended
        assert said in ended.stderr


def test_names_and_fields_are_checked_before_anything_is_created(rlctl: Rlctl, write_run: WriteRun) -> None:
    for file, said in (
        (write_run("x" * 53), "metadata.name"),
        (write_run("Upper"), "metadata.name"),
        (write_run("typo", environmnt="x"), "environmnt"),
    ):
        ended = rlctl("run", file, "--local")
        assert ended.returncode == 2, ended
        assert said in ended.stderr
    assert "No runs" in rlctl("list", "--local").stdout


def test_a_missing_file_is_named(rlctl: Rlctl) -> None:
    ended = rlctl("run", "no/such.yaml", "--local")
    assert (ended.returncode, ended.stderr) == (2, "error: cannot read no/such.yaml: No such file or directory\n")


def test_a_missing_key_is_named_before_anything_is_created(rlctl: Rlctl, write_run: WriteRun) -> None:
    ended = rlctl("run", write_run("keyless", runtime="default"), "--local")
    assert ended.returncode == 2
    assert "TINKER_API_KEY is not set" in ended.stderr
    assert "No runs" in rlctl("list", "--local").stdout


def test_a_missing_installation_is_named_before_anything_is_created(
    rlctl: Rlctl, write_run: WriteRun, tmp_path: Path
) -> None:
    """rl-operator installed alone: a Python of its own, with nothing beside it."""
    venv.create(tmp_path / "alone", symlinks=True, with_pip=False)
    call = "import sys; sys.argv[0] = 'rlctl'; from rl_operator.cli import main; main()"
    done = subprocess.run(
        [tmp_path / "alone" / "bin" / "python", "-c", call, "run", write_run("lonely"), "--local"],
        env=rlctl.env_vars | {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done
    assert "the program 'tinker-atropos' is not there; install it beside rlctl: pip install" in done.stderr
    assert "No runs" in rlctl("list", "--local").stdout


def test_an_unknown_run_is_refused_with_those_that_there_are(rlctl: Rlctl, write_run: WriteRun) -> None:
    assert rlctl("run", write_run("draft", suspend=True), "--local").returncode == 0
    for verb in ("get", "watch", "wait", "logs", "stop", "delete", "results"):
        ended = rlctl(verb, "nobody", "--local")
        assert ended.returncode == 2
        assert "there is no run 'nobody'" in ended.stderr
        assert "there are: draft" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("no-such-verb",),
        ("list", "-o", "xml"),
        ("wait", "x", "--until", "soon"),
        ("logs", "x", "-c", "sidecar"),
    ],
)
def test_wrong_usage_is_exit_code_2(rlctl: Rlctl, arguments: tuple[str, ...]) -> None:
    assert rlctl(*arguments).returncode == 2


def test_a_state_folder_that_cannot_be_written(tmp_path: Path, rlctl: Rlctl, write_run: WriteRun) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = rlctl("run", write_run("nowhere"), "--local", RL_STATE_DIR=str(tmp_path / "file"))
    assert ended.returncode == 3
    assert "Not a directory" in ended.stderr


def test_without_a_kubeconfig_the_back_end_is_this_machine(rlctl: Rlctl) -> None:
    assert rlctl("list").stdout.startswith("No runs in namespace default of local:")


def test_a_cluster_that_is_not_there(rlctl: Rlctl, tmp_path: Path) -> None:
    missing = rlctl("list", KUBECONFIG=str(tmp_path / "none"))
    assert (missing.returncode, missing.stderr.count("\n")) == (3, 1), missing
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}],"
        " users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: k, user: u}}]}"
    )
    silent = rlctl("list", KUBECONFIG=str(kubeconfig))
    assert silent.returncode == 3, silent
    assert "does not answer" in silent.stderr


def test_a_good_file_is_validated_and_rendered_without_creating_anything(rlctl: Rlctl, write_run: WriteRun) -> None:
    file = write_run("sorting", config={"total_steps": 7})
    validated = rlctl("validate", file, "--local")
    assert (validated.returncode, validated.stderr) == (0, "")
    assert "run sorting is accepted by runtime tiny of local:" in validated.stdout
    assert json.loads(rlctl("validate", file, "--local", "-o", "json").stdout) == {"accepted": True, "refusals": []}
    rendered = rlctl("render", file, "--local")
    assert rendered.returncode == 0, rendered
    assert "  total_steps: 7\n" in rendered.stdout
    kinds = [item["kind"] for item in json.loads(rlctl("render", file, "--local", "-o", "json").stdout)["items"]]
    assert kinds == ["ConfigMap", "Pod"]
    assert "No runs" in rlctl("list", "--local").stdout
