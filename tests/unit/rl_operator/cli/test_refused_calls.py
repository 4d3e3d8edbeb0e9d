"""Refused calls: the exit code, one line on stderr, and nothing is created. In this process."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.unit.rl_operator.targets.fakes import run_manifest

from rl_operator.local.state.state_store import StateStore

Call = Callable[..., tuple[int, str, str]]


def write_run(folder: Path, name: str, **spec: str) -> str:
    path = folder / "run.yaml"
    document = run_manifest(name, spec=spec)
    path.write_text(yaml.safe_dump({**document, "metadata": {"name": name}, "status": {}}))
    return str(path)


@pytest.mark.parametrize("verb", ["run", "validate", "render"])
@pytest.mark.parametrize(
    ("text", "said"), [("a: [", "this is not readable YAML"), ("kind: ConfigMap", "exactly one RLTrainingRun")]
)
def test_a_file_without_a_run(call_rlctl: Call, tmp_path: Path, verb: str, text: str, said: str) -> None:
    """What else may be in such a file: tests/unit/rl_operator/documents/test_parse.py."""
    file = tmp_path / "file.yaml"
    file.write_text(text)
    code, _, errors = call_rlctl(verb, str(file), "--local")
    assert (code, said in errors) == (2, True), errors


@pytest.mark.parametrize(
    ("name", "spec", "said"),
    [("x" * 53, {}, "metadata.name"), ("Upper", {}, "metadata.name"), ("typo", {"environmnt": "x"}, "environmnt")],
)
def test_names_and_fields_are_checked_before_anything_is_created(
    call_rlctl: Call, tmp_path: Path, name: str, spec: dict[str, str], said: str
) -> None:
    code, _, errors = call_rlctl("run", write_run(tmp_path, name, **spec), "--local")
    assert (code, said in errors) == (2, True), errors
    assert call_rlctl("list", "--local")[1].startswith("No runs")


def test_a_missing_file_is_named(call_rlctl: Call) -> None:
    assert call_rlctl("run", "no/such.yaml", "--local") == (
        2,
        "",
        "error: cannot read no/such.yaml: No such file or directory\n",
    )


@pytest.mark.parametrize("verb", ["get", "watch", "wait", "logs", "stop", "delete", "results", "rollouts"])
def test_an_unknown_run_is_refused_with_the_existing_ones(
    call_rlctl: Call, store_of_rlctl: StateStore, verb: str
) -> None:
    store_of_rlctl.create(run_manifest("over", phase="Succeeded"))
    code, _, errors = call_rlctl(verb, "nobody", "--local")
    assert code == 2
    assert "there is no run 'nobody'" in errors
    assert "there are: over" in errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("no-such-verb",),
        ("list", "-o", "xml"),
        ("wait", "x", "--until", "soon"),
        ("logs", "x", "-c", "sidecar"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(call_rlctl: Call, arguments: tuple[str, ...]) -> None:
    assert call_rlctl(*arguments)[0] == 2


@pytest.mark.parametrize("verb", ["run", "list"])
def test_a_state_folder_that_is_a_file(call_rlctl: Call, store_of_rlctl: StateStore, tmp_path: Path, verb: str) -> None:
    place = store_of_rlctl.layout.root
    place.write_text("in the way")
    file = [write_run(tmp_path, "nowhere", runtime="tiny")] if verb == "run" else []
    assert call_rlctl(verb, *file, "--local") == (
        2,
        "",
        f"error: the state folder {place}: it is not a folder; name another with --state-dir or RL_STATE_DIR\n",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-l", "a=b=c"), "--selector has 'a=b=c': a term is key=value"),
        (("-l", "team in (a)"), "--selector has 'team in (a)'"),
        (("-n", "Foo Bar"), "--namespace is 'Foo Bar'"),
        (("--context", "x"), "--context names a cluster and --local this machine"),
        (("--kubeconfig", "x"), "--kubeconfig names a cluster and --local this machine"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_impossible_places_and_labels(call_rlctl: Call, arguments: tuple[str, ...], said: str) -> None:
    code, _, errors = call_rlctl("list", "--local", *arguments)
    assert (code, errors.startswith(f"error: {said}")) == (2, True), errors


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {}}]
contexts: [{name: lab, context: {cluster: lab, user: me}}, {name: farm, context: {cluster: lab, user: me}}]
current-context: lab
"""


@pytest.fixture
def two_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The caller's kubeconfig."""
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setattr("rl_operator.cluster.api_server.connection.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    return file


@pytest.mark.parametrize(
    ("arguments", "ended", "said"),
    [
        (("list", "--context", "nope"), 3, "there is no context 'nope' in kubeconfig '{file}'; it has farm, lab"),
        (
            ("tools", "serve", "--token-file", "tokens"),
            2,
            "--token-file is for --local: in front of a cluster callers bring Kubernetes tokens",
        ),
    ],
)
def test_of_a_cluster(call_rlctl: Call, two_contexts: Path, arguments: tuple[str, ...], ended: int, said: str) -> None:
    code, _, errors = call_rlctl(*arguments)
    assert (code, errors) == (ended, f"error: {said.format(file=two_contexts)}\n")


def test_an_address_that_is_not_this_machines(call_rlctl: Call) -> None:
    code, _, errors = call_rlctl("tools", "serve", "--local", "--host", "203.0.113.1", "--port", "0")
    assert (code, "cannot listen on 203.0.113.1 port 0" in errors) == (2, True), errors


PROGRESS = {"step": 40, "totalSteps": 40, "percent": 100}
STOPPED = {
    "phase": "Stopped",
    "observedGeneration": 1,
    "progress": {**PROGRESS, "step": 3},
    "conditions": [
        {"type": "Suspended", "status": "True", "reason": "Suspended", "lastTransitionTime": "2026-11-22T00:30:00Z"}
    ],
}


@pytest.mark.parametrize(
    ("status", "until", "code", "said"),
    [
        ({"phase": "Succeeded"}, "step=40", 0, ""),
        ({"phase": "Succeeded"}, "step=9999", 2, "run over has 40 steps in all: step=9999 will not come"),
        (STOPPED, "step=4", 2, "run over is stopped and will not get there; resume it: rlctl resume over"),
        (
            STOPPED | {"phase": "Draft"},
            "step=4",
            2,
            "run over is a draft and does not start by itself; start it: rlctl resume",
        ),
        (STOPPED, "step=41", 2, "run over has 40 steps in all: step=41 will not come"),
        ({"phase": "Failed", "progress": {**PROGRESS, "step": 3}}, "step=4", 1, ""),
        ({"phase": "Failed"}, "step=4", 0, ""),
    ],
)
def test_waiting_for_what_cannot_come_fails(  # noqa: PLR0917 -- the table's columns
    call_rlctl: Call, store_of_rlctl: StateStore, status: dict[str, object], until: str, code: int, said: str
) -> None:
    store_of_rlctl.create(run_manifest("over", **{"progress": PROGRESS, "message": "m", **status}))
    ended, _, errors = call_rlctl("wait", "over", "--until", until, "--local", "--timeout", "30")
    assert (ended, said in errors) == (code, True), errors


def test_a_file_that_is_not_there_cannot_be_brought(call_rlctl: Call) -> None:
    assert (
        call_rlctl("init", "--from", "nosuch.py", "--local")[2]
        == "error: cannot read nosuch.py: there is no such file\n"
    )
