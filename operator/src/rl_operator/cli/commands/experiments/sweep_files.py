"""`rlctl sweep --write DIR`: a file for each run, as a person would write it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_operator.errors import RefusedError

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun
    from rl_operator.cli.commands.experiments.sweep_runs import Sweep


def write_runs(sweep: "Sweep", folder: Path, usual_namespace: str) -> list[Path]:
    """The files, each with the objects that stood beside the run. Raises RefusedError if one of them is there already,
    and then nothing is written.
    """
    from rl_operator.documents.yaml_text import write_yaml

    paths = [folder / f"{run.metadata.name}.yaml" for run in sweep.runs]
    if there := [path for path in paths if path.exists()]:
        raise RefusedError(f"{there[0]} is there already: nothing is written; choose another folder, or remove it")
    beside = [document for document in sweep.file.beside if document is not sweep.file.model_runtime]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, run in zip(paths, sweep.runs, strict=True):
            documents = [*beside, as_written(run, folder, usual_namespace)]
            path.write_text("---\n".join(map(write_yaml, documents)), encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"cannot write to {folder}: {error.strerror}") from None
    return paths


def as_written(run: "TrainingRun", folder: Path, usual_namespace: str) -> dict[str, Any]:
    """Without what a run has anyway, and without the caller's usual namespace. The path of an environment's file begins
    at the new file's folder.
    """
    from rl_operator.api.run import RunSpec
    from rl_operator.local.own_environments import FILE_ANNOTATION

    spec = run.spec.to_wire()
    usual = RunSpec(environment=run.spec.environment).to_wire()
    kept = {name: value for name, value in spec.items() if name in ("environment", "runtime") or value != usual[name]}
    annotations = dict(run.metadata.annotations)
    if path := annotations.pop(FILE_ANNOTATION, None):
        kept["environment"] = str(Path(os.path.relpath(path, folder.absolute())))
    metadata = run.metadata
    place = {"namespace": metadata.namespace} if metadata.namespace != usual_namespace else {}
    head = {"name": metadata.name, **place, "labels": metadata.labels, "annotations": annotations}
    return {"apiVersion": run.api_version, "kind": run.kind, "metadata": head, "spec": kept}
