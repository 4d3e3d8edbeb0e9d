"""A run's file: one RLTrainingRun, together with the objects that it needs."""

import contextlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rl_operator.api.kubernetes_objects import Manifest, ManifestMetadata
from rl_operator.api.names import API_VERSION, ENVIRONMENT_KIND, HARNESS_PREFIX, RUN_KIND, RUNTIME_KIND
from rl_operator.api.refusal import Refusal, redacted
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import DocumentError, load_documents, parse_environment, parse_runtime, run_among
from rl_operator.documents.yaml_text import MAX_CHARACTERS
from rl_operator.local.own_environments import FILE_ANNOTATION
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.target import Target

BESIDE: Final = ("ConfigMap", ENVIRONMENT_KIND, RUNTIME_KIND)
"""Kinds that are supported next to the run, in the order in which they are applied."""

_FILE_NAME = re.compile(r"[-._a-zA-Z0-9]{1,253}")


@dataclass(frozen=True)
class RunFile:
    """`run` has its namespace; `beside` are the documents of BESIDE, `passed_over` the kinds of all others.

    `model_runtime`: the one beside it that stands for the caller's own model, and is theirs to create.
    """

    run: TrainingRun
    beside: tuple[Manifest, ...] = ()
    passed_over: tuple[str, ...] = ()
    model_runtime: Manifest | None = None


def read_run_file(path: Path, target: Target, namespace: str, model: Path | None = None) -> RunFile:
    """Read FILE (`-`: stdin) for a target; `namespace`: where the caller wants it, may be empty; `model`: the folder of
    the model that it is to train, None: its runtime's.

    Raises RefusedError and DocumentError.
    """
    file = _read_run_file(path, target, namespace)
    return file if model is None else _with_model(file, model, target)


def _with_model(file: RunFile, folder: Path, target: Target) -> RunFile:
    """The file's run under a runtime of that model, which stands beside it."""
    if not target.runs_files:
        raise RefusedError(f"--model {folder} is a folder of this machine, and {target.label} has none: add --local")
    from rl_operator.local.model_runtimes import memory_of_this_machine, model_runtime, read_model, require_room

    model = read_model(folder)
    require_room(model, memory_of_this_machine())
    runtime = model_runtime(model)
    run = file.run.with_changes(spec=file.run.spec.with_changes(runtime=model.runtime))
    return replace(file, run=run, beside=(*file.beside, runtime), model_runtime=runtime)


def _read_run_file(path: Path, target: Target, namespace: str) -> RunFile:
    text = _read_text(path)
    documents = load_documents(text)
    run = run_among(documents)
    named = run.metadata.namespace if "namespace" in run.metadata.model_fields_set else ""
    place = namespace or named or target.namespace
    folder = Path.cwd() if str(path) == "-" else path.absolute().parent
    beside = [_beside(document, namespace, place) for document in documents if document.get("kind") in BESIDE]
    others = {str(document.get("kind")) for document in documents} - {RUN_KIND, *BESIDE}
    return RunFile(
        run=with_file(run.with_changes(metadata=run.metadata.with_changes(namespace=place)), folder, target),
        beside=tuple(sorted(beside, key=lambda document: BESIDE.index(document["kind"]))),
        passed_over=tuple(sorted(others)),
    )


def authored(run: TrainingRun, spec: dict[str, Any]) -> Manifest:
    """What an author writes, without anything that the API server sets."""
    metadata = run.metadata
    head: ManifestMetadata = {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "labels": metadata.labels,
        "annotations": metadata.annotations,
    }
    return {"apiVersion": API_VERSION, "kind": RUN_KIND, "metadata": head, "spec": spec}


def with_uid(file: RunFile, uid: str) -> RunFile:
    """The file's run with the name that the API server would give it."""
    return replace(file, run=file.run.with_changes(metadata=file.run.metadata.with_changes(uid=uid)))


def as_it_runs(file: RunFile, target: Target) -> RunFile:
    """The file's run as the target's reconcile reads it."""
    return replace(file, run=file.run.without_sandbox_pods) if target.runs_files else file


def with_file(run: TrainingRun, folder: Path, target: Target) -> TrainingRun:
    """`./my_env.py` is next to the run's file: its path is stored with the run, which may be read from anywhere. So are
    the files that a harness' command names.
    """
    if not target.runs_files:
        return run
    if run.spec.environment.startswith(HARNESS_PREFIX):
        return _with_command(run, folder)
    if not run.spec.environment.endswith(".py"):
        return run
    path = str((folder / run.spec.environment).resolve())
    annotations = run.metadata.annotations | {FILE_ANNOTATION: path}
    return run.with_changes(metadata=run.metadata.with_changes(annotations=annotations))


def _with_command(run: TrainingRun, folder: Path) -> TrainingRun:
    """Its program starts in a folder of its own, where `agent.py` would not be found."""
    command = run.spec.config.get("command")
    if not isinstance(command, list):  # the check says so
        return run
    words = [_absolute(word, folder, is_program=at == 0) for at, word in enumerate(command)]
    return run.with_changes(spec=run.spec.with_changes(config={**run.spec.config, "command": words}))


def _absolute(word: object, folder: Path, *, is_program: bool) -> object:
    """A file of the folder by its path. A program without a slash is looked up in PATH, as shells do."""
    if not isinstance(word, str) or (is_program and "/" not in word) or not _is_file(folder, word):
        return word
    return str(folder / word)


def _is_file(folder: Path, word: str) -> bool:
    try:
        return (folder / word).is_file()
    except (OSError, ValueError):  # a prompt, not a path
        return False


def _beside(document: Manifest, namespace: str, place: str) -> Manifest:
    """The document with its namespace. Raises DocumentError if it is not valid."""
    kind = document["kind"]
    if kind == RUNTIME_KIND:
        parse_runtime(document)
        return document
    if kind == ENVIRONMENT_KIND:
        parse_environment(document)
    else:
        _check_config_map(document)
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "namespace": namespace or metadata.get("namespace") or place}}


def _check_config_map(document: Mapping[str, object]) -> None:
    """As far as this project uses it: a name, and texts by file name."""
    metadata, data = document.get("metadata"), document.get("data", {})
    if not (isinstance(metadata, dict) and isinstance(metadata.get("name"), str)):
        raise _invalid("metadata.name", None, "a ConfigMap needs a name")
    if not isinstance(data, dict):
        raise _invalid("data", data, "the data of a ConfigMap must be a mapping from file names to strings")
    for name, text in data.items():
        if not _FILE_NAME.fullmatch(name) or name in (".", ".."):
            raise _invalid("data", name, "a file name in a ConfigMap has letters, digits, '-', '_' and '.' only")
        if not isinstance(text, str):
            raise _invalid(f"data[{name}]", text, "it must be a string: write it with | after the name")


def _invalid(field: str, given: object, hint: str) -> DocumentError:
    return DocumentError(Refusal(code="InvalidDocument", field=field, given=redacted(given), hint=hint))


def _read_text(path: Path) -> str:
    """No more of a file is read than it may hold: what is larger is refused at once."""
    try:
        with contextlib.nullcontext(sys.stdin) if str(path) == "-" else path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise RefusedError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RefusedError(f"{path} is not a text file: a run is YAML in UTF-8") from None
    if len(text) > MAX_CHARACTERS:
        raise RefusedError(
            f"{path} has more than {MAX_CHARACTERS} characters, and no run needs as many: put what it does not need "
            "elsewhere"
        )
    return text
