"""examples/gitops is consistent: references, what must never be set, and every copy of the health check.

The kinds of Argo CD and Flux are not here, so only the parts of their objects that we rely on are checked.
"""

import json
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.integration.cluster.control_plane import find_program
from tests.unit.rl_operator.status.gitops import HEALTH_SCRIPT, health_by

from generate.crds import custom_resource_definitions
from rl_operator.api.run_inputs import RunInputs, choose_environment
from rl_operator.check.run_check import check_run
from rl_operator.documents.parse import load_documents, parse_run, parse_runtime
from rl_operator.documents.shipped import bundled_catalog, bundled_runtime_text

ROOT: Final = Path("examples/gitops")
RUNS: Final = sorted((ROOT / "team-a/runs").iterdir())
TRAINING: Final = "https://git.example.com/training.git"
CHARTS: Final = "registry.example.com/charts"
CHART_NAMES: Final = ("rl-operator", "rl-runtimes")
VERSION: Final = tomllib.loads(Path("operator/pyproject.toml").read_text())["project"]["version"]

Manifest = dict[str, Any]


def documents(folder: str) -> list[Manifest]:
    files = sorted((ROOT / folder).rglob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


ARGO: Final = {document["metadata"]["name"]: document for document in documents("argocd")}
APPLICATIONS: Final = {name: document for name, document in ARGO.items() if document["kind"] == "Application"}
PER_RUN: Final = ARGO["team-a-runs"]["spec"]
FLUX: Final = documents("flux")


def of_kind(kind: str) -> dict[str, Manifest]:
    return {document["metadata"]["name"]: document["spec"] for document in FLUX if document["kind"] == kind}


# --- the runs --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.stem)
def test_a_run_is_a_file_that_both_tools_can_apply_forever(file: Path) -> None:
    [document] = load_documents(file.read_text())
    assert document["metadata"] == {"name": file.stem, "namespace": "team-a"}
    assert not {"suspend", "ttlSecondsAfterFinished"} & set(document["spec"])


@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.stem)
def test_a_run_is_accepted(file: Path) -> None:
    run = parse_run(load_documents(file.read_text())[0])
    runtime = parse_runtime(load_documents(bundled_runtime_text("tiny"))[0])
    environment = choose_environment(run.spec.environment, runtime, bundled_catalog(), None)
    assert check_run(run, RunInputs(runtime=runtime, environment=environment)) == ()


def test_neither_tool_deletes_the_namespace() -> None:
    [namespace] = documents("team-a/namespace")
    annotations = namespace["metadata"]["annotations"]
    assert annotations["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
    assert annotations["kustomize.toolkit.fluxcd.io/prune"] == "disabled"


# --- Argo CD ---------------------------------------------------------------------------------------------------------
def health_checks() -> dict[str, str]:
    prefix = "resource.customizations.health."
    return {key.removeprefix(prefix): script for key, script in ARGO["argocd-cm"]["data"].items()}


def test_every_kind_has_the_health_check() -> None:
    scripts = health_checks()
    kinds = [crd["spec"]["names"]["kind"] for crd in custom_resource_definitions().values()]
    assert set(scripts) == {*(f"rl-operator.dev_{kind}" for kind in kinds), "argoproj.io_Application"}
    assert {scripts[f"rl-operator.dev_{kind}"] for kind in kinds} == {HEALTH_SCRIPT.read_text()}


@pytest.mark.parametrize(
    ("status", "health"),
    [
        ({}, "Progressing"),
        ({"status": {"sync": {"status": "Unknown"}}}, "Progressing"),
        ({"status": {"health": {}}}, "Progressing"),
        ({"status": {"health": {"status": "Degraded", "message": "why"}}}, "Degraded"),
        ({"status": {"health": {"status": "Healthy"}}}, "Healthy"),
    ],
)
def test_a_wave_waits_for_the_applications_of_the_previous_one(status: Manifest, health: str) -> None:
    assert health_by(health_checks()["argoproj.io_Application"], status)[0] == health


def test_the_waves() -> None:
    waves = {
        name: int(document["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"])
        for name, document in ARGO.items()
        if name not in ("argocd-cm", "rl")
    }
    assert waves == {"team-a": 0, "rl-operator": 1, "rl-runtimes": 2, "team-a-runs": 3}


def argo_sources() -> Iterator[Manifest]:
    yield from (application["spec"]["source"] for application in APPLICATIONS.values())
    [generator] = PER_RUN["generators"]
    for file in generator["git"]["files"]:
        yield {"repoURL": generator["git"]["repoURL"], "path": str(Path(file["path"]).parent)}


def test_everything_argo_reads_exists() -> None:
    for source in argo_sources():
        if source["repoURL"] == TRAINING:
            assert list((ROOT / source["path"]).glob("*.yaml")), source
        else:
            assert (source["repoURL"], source["targetRevision"]) == (CHARTS, VERSION)
            assert source["chart"] in CHART_NAMES


def test_each_run_is_a_separate_application() -> None:
    template = PER_RUN["template"]
    assert template["metadata"]["name"] == "run-{{.metadata.name}}"
    source = template["spec"]["source"]
    assert (source["path"], source["directory"]) == ("{{.path.path}}", {"include": "{{.path.filename}}"})
    assert (PER_RUN["goTemplate"], PER_RUN["goTemplateOptions"]) == (True, ["missingkey=error"])
    assert template["metadata"]["finalizers"] == ["resources-finalizer.argocd.argoproj.io"]


def test_argo_never_replaces_and_ignores_nothing() -> None:
    for spec in (PER_RUN["template"]["spec"], *(application["spec"] for application in APPLICATIONS.values())):
        options = spec["syncPolicy"].get("syncOptions", [])
        assert not [option for option in options if option.startswith(("Replace", "Force"))]
        assert "ignoreDifferences" not in spec


# --- Flux ------------------------------------------------------------------------------------------------------------
def test_everything_flux_reads_exists() -> None:
    for name, spec in of_kind("Kustomization").items():
        assert list((ROOT / spec["path"]).glob("*.yaml")), name
        assert spec["sourceRef"] == {"kind": "GitRepository", "name": "flux-system"}
    for name, spec in of_kind("HelmRelease").items():
        chart = of_kind("OCIRepository")[spec["chartRef"]["name"]]
        assert (chart["url"], chart["ref"]["tag"]) == (f"oci://{CHARTS}/{name}", VERSION)


@pytest.mark.parametrize("kind", ["Kustomization", "HelmRelease"])
def test_dependencies_of_flux_exist_and_are_not_circular(kind: str) -> None:
    specs = of_kind(kind)
    needs = {name: {need["name"] for need in spec.get("dependsOn", ())} for name, spec in specs.items()}
    assert set().union(*needs.values()) <= set(specs)
    assert not [name for name, needed in needs.items() for other in needed if name in needs[other]]


def test_flux_waits_and_never_forces() -> None:
    for name, spec in of_kind("Kustomization").items():
        assert (spec["wait"], spec["prune"], spec.get("force", False)) == (True, True, False), name
    assert of_kind("Kustomization")["team-a-runs"]["force"] is False


# --- the charts ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CHART_NAMES)
def test_both_tools_install_the_chart_alike(name: str) -> None:
    assert ARGO[name]["spec"]["source"]["helm"]["valuesObject"] == of_kind("HelmRelease")[name]["values"]
    assert yaml.safe_load(Path(f"charts/{name}/Chart.yaml").read_text())["version"] == VERSION


@pytest.mark.process
@pytest.mark.skipif(not find_program("helm"), reason="needs helm beside kube-apiserver")
@pytest.mark.parametrize("name", CHART_NAMES)
def test_the_chart_accepts_the_values(name: str) -> None:
    """Its schema refuses unknown values; and each image is the one in the registry."""
    values = json.dumps(of_kind("HelmRelease")[name]["values"])
    command = [str(find_program("helm")), "template", name, f"charts/{name}", "--skip-tests", "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "registry.example.com/" in done.stdout
    assert ":dev" not in done.stdout


# --- the page --------------------------------------------------------------------------------------------------------
def test_the_page_names_every_file() -> None:
    page = Path("docs/how-to/gitops.md").read_text()
    files = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    assert [file for file in files if file not in page] == []
