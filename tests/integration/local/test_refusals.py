"""Bad input, as processes: exit code 2 and a helpful message, which is in the run's status too.

Refusals that start nothing are in tests/unit/rl_operator/cli/test_refused_calls.py, in one process.
"""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from tests.integration.local.conftest import Rlctl

WriteRun = Callable[..., str]


def test_a_refused_run(rlctl: Rlctl, write_run: WriteRun) -> None:
    """The refusals and their messages are tested in tests/unit/rl_operator/check and test_refusal_words."""
    refusal = "UnknownField: spec.config.group_sise"
    file = write_run("refused", config={"group_sise": 8})
    ended = rlctl("run", file, "--local")
    assert ended.returncode == 2, ended
    assert refusal in ended.stderr
    assert "'group_size'" in ended.stderr
    status = rlctl.status("refused")
    assert status["phase"] == "Pending"
    assert status["refusals"][0]["code"] == "UnknownField"
    assert {c["type"]: c["status"] for c in status["conditions"]} == {"Accepted": "False", "Stalled": "True"}
    assert "startTime" not in status
    rlctl.until_unsupervised("refused")
    checked = rlctl("validate", file, "--local")
    assert checked.returncode == 2
    assert f"error: {refusal}" in checked.stderr


def test_a_refused_run_starts_once_its_file_is_fixed(rlctl: Rlctl, write_run: WriteRun) -> None:
    assert rlctl("run", write_run("fixed", runtime="tony"), "--local").returncode == 2
    again = rlctl("run", write_run("fixed", suspend=True), "--local")
    assert again.returncode == 0, again
    assert "has not started: it takes this file's spec" in again.stderr
    assert rlctl.status("fixed")["phase"] == "Draft"
    assert rlctl.status("fixed")["message"].startswith("Checked and ready")


def test_a_missing_key_is_named_before_anything_is_created(rlctl: Rlctl, write_run: WriteRun) -> None:
    ended = rlctl("run", write_run("keyless", runtime="default"), "--local")
    assert ended.returncode == 2
    assert "TINKER_API_KEY is not set" in ended.stderr
    assert "No runs" in rlctl("list", "--local").stdout


def test_a_missing_installation_is_named_before_anything_is_created(
    rlctl: Rlctl, write_run: WriteRun, tmp_path: Path
) -> None:
    """rl-operator installed alone: a separate Python, with nothing next to it."""
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
    assert "program tinker-atropos is missing: " in done.stderr
    assert "install it beside rlctl: pip install" in done.stderr
    assert "No runs" in rlctl("list", "--local").stdout


def test_an_unreachable_cluster(rlctl: Rlctl, tmp_path: Path) -> None:
    """KUBECONFIG counts as set when rlctl starts."""
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
    listed = rlctl("list")
    assert listed.stdout.startswith("No runs in namespace default of local:"), "without a kubeconfig it is this machine"
