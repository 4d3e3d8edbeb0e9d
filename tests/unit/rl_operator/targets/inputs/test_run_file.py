"""What a file contains besides its run, and where that belongs."""

import io
from pathlib import Path

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget

from rl_operator.documents.parse import DocumentError
from rl_operator.documents.yaml_text import MAX_CHARACTERS
from rl_operator.local.own_environments import FILE_ANNOTATION
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.inputs.run_file import RunFile, read_run_file

RUN = (
    "apiVersion: rl-operator.dev/v1alpha1\nkind: RLTrainingRun\nmetadata: {name: sorting%s}\nspec: {environment: %s}\n"
)
ENVIRONMENT = (
    "apiVersion: rl-operator.dev/v1alpha1\nkind: RLEnvironment\nmetadata: {name: mine}\n"
    "spec: {source: {configMap: {name: code}}}\n"
)
CODE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code%s}\ndata: {a.py: 'x = 1'}\n"


def read(path: Path, *documents: str, namespace: str = "", runs_files: bool = True) -> RunFile:
    path.write_text("---\n".join(documents))
    return read_run_file(path, MemoryTarget(runs_files=runs_files), namespace)


@pytest.mark.parametrize(
    ("in_run", "in_code", "asked", "found"),
    [
        ("", "", "", ["default", "default"]),
        (", namespace: a", "", "", ["a", "a"]),
        (", namespace: a", ", namespace: b", "", ["a", "b"]),
        (", namespace: a", ", namespace: b", "c", ["c", "c"]),
    ],
)
def test_namespaces(tmp_path: Path, in_run: str, in_code: str, asked: str, found: list[str]) -> None:
    given = read(tmp_path / "f.yaml", RUN % (in_run, "own/mine"), CODE % in_code, namespace=asked)
    [code] = given.beside
    assert [given.run.metadata.namespace, code["metadata"]["namespace"]] == found


def test_dependencies_come_first_and_unrelated_objects_are_named(tmp_path: Path) -> None:
    stranger = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
    given = read(tmp_path / "f.yaml", ENVIRONMENT, stranger, RUN % ("", "own/mine"), CODE % "")
    assert [document["kind"] for document in given.beside] == ["ConfigMap", "RLEnvironment"]
    assert given.passed_over == ("Deployment",)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (CODE.replace("a.py", "../a.py") % "", "data"),
        (CODE.replace("a.py", "..") % "", "data"),
        (CODE.replace("'x = 1'", "1") % "", "data[a.py]"),
        (CODE.replace("{a.py: 'x = 1'}", "[1]") % "", "data"),
        (CODE.replace("name: code", "labels: {}") % "", "metadata.name"),
        (ENVIRONMENT.replace("source", "sauce"), "spec.sauce"),
    ],
)
def test_invalid_content_is_named(tmp_path: Path, document: str, field: str) -> None:
    with pytest.raises(DocumentError) as refused:
        read(tmp_path / "f.yaml", RUN % ("", "own/mine"), document)
    assert refused.value.refusal.field == field


def test_an_environments_file_is_relative_to_the_runs_file(tmp_path: Path) -> None:
    given = read(tmp_path / "f.yaml", RUN % ("", "./code/mine.py"))
    assert given.run.metadata.annotations == {FILE_ANNOTATION: str(tmp_path.resolve() / "code" / "mine.py")}
    assert given.run.spec.environment == "./code/mine.py"


def test_a_cluster_run_keeps_no_file_path(tmp_path: Path) -> None:
    assert read(tmp_path / "f.yaml", RUN % ("", "./mine.py"), runs_files=False).run.metadata.annotations == {}


class Counting(io.StringIO):
    """Standard input without an end."""

    characters = 0

    def read(self, size: int | None = -1) -> str:
        assert size is not None
        assert size > 0, "read to its end"
        self.characters += size
        return "#" * size


def test_a_file_that_is_too_large_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Counting()
    monkeypatch.setattr("sys.stdin", endless)
    with pytest.raises(RefusedError, match="- has more than 4000000 characters, and no run needs as many"):
        read_run_file(Path("-"), MemoryTarget(), "")
    assert endless.characters == MAX_CHARACTERS + 1


def test_a_file_of_30_mb_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="has more than 4000000 characters"):
        read(tmp_path / "f.yaml", "[" * 30_000_000)


def test_the_files_that_a_harness_names_are_beside_the_run(tmp_path: Path) -> None:
    command = "[python, agent.py, ./missing.py, '{prompt}', 7]"
    document = RUN % ("", f"harness/sort_digits, config: {{command: {command}}}")
    for name in ("agent.py", "python"):
        (tmp_path / name).write_text("")
    beside = read(tmp_path / "f.yaml", document).run.spec.config["command"]
    assert beside == ["python", str(tmp_path / "agent.py"), "./missing.py", "{prompt}", 7]
    elsewhere = read(tmp_path / "f.yaml", document, runs_files=False).run.spec.config["command"]
    assert elsewhere[1] == "agent.py"
