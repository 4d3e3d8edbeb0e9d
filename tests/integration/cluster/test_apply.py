"""Two managers apply the same run with the real kubectl: neither loses a field, and applying again changes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.kubectl import Answer, Kubectl
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace


class Applier:
    """One manager's file of the run `sorting`; `apply` sends it."""

    def __init__(self, kubectl: Kubectl, namespace: str, file: Path, *flags: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._file = file
        self._flags = flags

    def write(self, **spec: Any) -> None:
        document = {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLTrainingRun",
            "metadata": {"name": "sorting", "namespace": self._namespace},
            "spec": {"environment": "sort_digits", **spec},
        }
        self._file.write_text(json.dumps(document))

    def try_to_apply(self) -> Answer:
        return self._kubectl("apply", *self._flags, "-f", str(self._file))

    def apply(self, **spec: Any) -> dict[str, Any]:
        """The stored run. With a spec the file is written first."""
        if spec:
            self.write(**spec)
        answer = self.try_to_apply()
        assert answer.code == 0, answer.complaints
        return answer.objects[0]


def server_side(kubectl: Kubectl, runs: RunsNamespace, folder: Path, manager: str) -> Applier:
    flags = ("--server-side", f"--field-manager={manager}")
    return Applier(kubectl, runs.namespace, folder / f"{manager}.json", *flags)


@pytest.fixture
def person(kubectl: Kubectl, runs: RunsNamespace, tmp_path: Path) -> Applier:
    return server_side(kubectl, runs, tmp_path, "person")


@pytest.fixture
def flux(kubectl: Kubectl, runs: RunsNamespace, tmp_path: Path) -> Applier:
    return server_side(kubectl, runs, tmp_path, "flux")


def settled(runs: RunsNamespace) -> dict[str, Any]:
    """The draft once the operator's status refers to its current spec."""

    def look() -> dict[str, Any] | None:
        run = runs.find()
        seen = run and run.get("status", {}).get("observedGeneration") == run["metadata"]["generation"]
        return run if seen else None

    return wait_for("the draft is checked", look)


def test_applying_again_changes_nothing(runs: RunsNamespace, person: Applier) -> None:
    spec = {
        "runtime": "tiny",
        "suspend": True,
        "config": {"group_size": 8, "total_steps": 4},
        "startDeadlineSeconds": None,
    }
    person.apply(**spec)
    before = settled(runs)
    assert before["spec"]["startDeadlineSeconds"] is None
    assert person.apply()["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_two_managers_own_what_they_set(runs: RunsNamespace, person: Applier, flux: Applier) -> None:
    person.apply(runtime="tiny", suspend=True, config={"group_size": 8}, wandb={"tags": ["mine"], "project": "rl"})
    settled(runs)
    flux.apply(config={"total_steps": 4}, wandb={"tags": ["fleet"]}, backoffLimit=5)

    both = settled(runs)
    assert both["spec"]["config"] == {"group_size": 8, "total_steps": 4}
    assert sorted(both["spec"]["wandb"]["tags"]) == ["fleet", "mine"]
    assert (both["spec"]["backoffLimit"], both["spec"]["runtime"]) == (5, "tiny")
    for applier in (person, flux, person):
        assert applier.apply()["metadata"]["resourceVersion"] == both["metadata"]["resourceVersion"]

    less = flux.apply(config={}, wandb={"tags": ["fleet-2"]})
    assert less["spec"]["config"] == {"group_size": 8}
    assert sorted(less["spec"]["wandb"]["tags"]) == ["fleet-2", "mine"]
    assert less["spec"]["backoffLimit"] == 3, "back to the default"


def test_a_value_owned_by_another_is_a_conflict_that_names_it(
    runs: RunsNamespace, person: Applier, flux: Applier
) -> None:
    person.apply(runtime="tiny", suspend=True, config={"group_size": 8})
    settled(runs)
    flux.write(config={"group_size": 4})
    answer = flux.try_to_apply()
    assert answer.code != 0
    assert 'conflict with "person": .spec.config.group_size' in answer.complaints


def test_the_operator_owns_no_field_of_the_spec(runs: RunsNamespace, person: Applier) -> None:
    person.apply(runtime="tiny", suspend=True)
    owners = settled(runs)["metadata"]["managedFields"]
    assert [entry["manager"] for entry in owners if "f:spec" in entry["fieldsV1"]] == ["person"]
    of_status = [entry for entry in owners if "f:status" in entry["fieldsV1"]]
    assert [(entry["subresource"], entry["fieldsV1"]) for entry in of_status] == [("status", {"f:status": {}})]


def test_a_client_side_apply_twice_changes_nothing(kubectl: Kubectl, runs: RunsNamespace, tmp_path: Path) -> None:
    applier = Applier(kubectl, runs.namespace, tmp_path / "run.json")
    applier.apply(
        runtime="tiny", suspend=True, startDeadlineSeconds=None, config={"group_size": 8}, wandb={"tags": ["b", "a"]}
    )
    before = settled(runs)
    assert applier.apply()["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
