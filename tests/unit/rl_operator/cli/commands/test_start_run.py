"""What `rlctl run FILE` does with a name that is taken."""

import copy
import os
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.commands.start_run import _stop_or_detach, apply_beside, submit
from rl_operator.operator_errors import NameTakenError, RefusedError
from rl_operator.targets.inputs.run_file import RunFile


class Interrupted(MemoryTarget):
    """Ctrl-C comes at the first look after a change."""

    changed = False

    def change_spec(self, *arguments: Any, **options: Any) -> Any:
        self.changed = True
        return super().change_spec(*arguments, **options)

    def run(self, namespace: str, name: str) -> Any:
        if self.changed:
            self.changed = False
            raise KeyboardInterrupt
        return super().run(namespace, name)


@pytest.mark.parametrize(("answer", "says"), [("stop\n", "is asked to stop"), ("\n", "continues")])
def test_after_the_answer_stop_nothing_says_that_it_continues(
    answer: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, keyboard = os.openpty()
    os.write(terminal, answer.encode())
    target = Interrupted(copy.deepcopy(RUNNING))
    with os.fdopen(keyboard) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        _stop_or_detach(target, "default", "sorting")
    os.close(terminal)
    assert f"sorting {says} (memory)" in capsys.readouterr().err


WANTED = parsed(run_manifest(spec={"config": {"total_steps": 7}}))


RUNNING = run_manifest(phase="Running", startTime="2026-01-01T00:00:00Z")
STOPPED = run_manifest(spec={"suspend": True}, phase="Stopped", startTime="2026-01-01T00:00:00Z")


def submitted(existing: dict[str, Any], wanted: TrainingRun = WANTED) -> dict[str, Any]:
    """The run after `rlctl run`."""
    target = MemoryTarget(copy.deepcopy(existing))
    assert submit(target, wanted, "default") == "sorting"
    return target.objects["default", "sorting"]


def test_a_new_name_is_created(capsys: pytest.CaptureFixture[str]) -> None:
    target = MemoryTarget()
    assert submit(target, WANTED, "team-a") == "sorting"
    created = target.objects["team-a", "sorting"]
    assert created["spec"]["config"] == {"total_steps": 7}
    assert "status" not in created
    assert capsys.readouterr().err == "sorting is created (memory)\n"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_name_gets_the_next_free_number(phase: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = MemoryTarget(run_manifest(phase=phase), run_manifest("sorting-2"))
    assert submit(target, WANTED, "default") == "sorting-3"
    assert f"sorting is over ({phase}), so this is sorting-3" in capsys.readouterr().err
    assert target.objects["default", "sorting"]["status"]["phase"] == phase


def test_a_running_one_is_followed_and_left_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    target = MemoryTarget(copy.deepcopy(RUNNING))
    assert submit(target, WANTED, "default") == "sorting"
    assert "config" not in target.objects["default", "sorting"]["spec"]
    assert target.looked_after == ["default/sorting"]
    assert "sorting is running" in capsys.readouterr().err


def test_what_a_changed_file_does_not_reach_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(RUNNING)
    assert "the file differs in spec.config.total_steps, which does not reach it" in capsys.readouterr().err
    submitted({**RUNNING, "spec": WANTED.to_wire()["spec"]})
    assert "differs" not in capsys.readouterr().err


def test_the_slower_of_two_attaches_to_the_run_of_the_faster(capsys: pytest.CaptureFixture[str]) -> None:
    class Raced(MemoryTarget):
        def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
            super().create(RUNNING)
            raise NameTakenError(f"RLTrainingRun {manifest['metadata']['name']} is there already")

    assert submit(Raced(), WANTED, "default") == "sorting"
    assert "sorting is running: this follows it" in capsys.readouterr().err


def test_a_stopped_one_is_resumed() -> None:
    resumed = submitted(STOPPED)["spec"]
    assert resumed["suspend"] is False
    assert "config" not in resumed


def test_the_tool_that_would_revert_the_change_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"kustomize.toolkit.fluxcd.io/name": "team"}
    submitted({**STOPPED, "metadata": {**STOPPED["metadata"], "labels": labels}})
    assert "warning: Flux Kustomization 'default/team'" in capsys.readouterr().err


def test_a_number_must_fit_into_the_name() -> None:
    name = "x" * 51
    target = MemoryTarget(run_manifest(name, phase="Failed"))
    with pytest.raises(RefusedError, match="too long for a name"):
        submit(target, parsed(run_manifest(name)), "default")


@pytest.mark.parametrize("spec", [{"suspend": True}, {"config": {"group_sise": 8}}, {"environment": "sort_digit"}])
def test_one_that_has_not_started_gets_the_files_spec(spec: dict[str, Any]) -> None:
    taken = submitted(run_manifest(spec=spec, phase="Pending"))["spec"]
    assert parsed(run_manifest(spec=taken)).spec == WANTED.spec


def test_one_that_has_not_started_gets_the_files_location_too() -> None:
    annotations = {"rl-operator.dev/environment-file": "/new/my_env.py"}
    metadata = WANTED.metadata.with_changes(annotations=annotations)
    taken = submitted(run_manifest(phase="Pending"), WANTED.with_changes(metadata=metadata))
    assert taken["metadata"]["annotations"] == annotations


def test_dependencies_are_applied_and_other_objects_are_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    target = MemoryTarget()
    documents = [{"kind": kind, "metadata": {"name": "x", "namespace": "a"}} for kind in ("ConfigMap", "RLRuntime")]
    apply_beside(target, RunFile(WANTED, tuple(documents), ("Deployment",)))
    assert list(target.others) == [("ConfigMap", "a", "x")]
    assert capsys.readouterr().err.splitlines() == [
        "ConfigMap x is applied (memory)",
        "RLRuntime x of the file is left alone: a runtime is an administrator's (memory)",
        "the file also holds Deployment objects: rlctl leaves them alone",
    ]


def test_a_restored_one_is_requested_again(capsys: pytest.CaptureFixture[str]) -> None:
    restored = run_manifest(phase="Stopped", startTime="2026-01-01T00:00:00Z")
    restored["metadata"]["annotations"] = {STARTED_AS_ANNOTATION: "sorting.another-uid", "kept": "yes"}
    assert submitted(restored)["metadata"]["annotations"] == {"kept": "yes"}
    assert "it trains from the beginning" in capsys.readouterr().err


def test_a_file_with_the_mark_of_an_earlier_run_makes_a_new_run() -> None:
    marked = run_manifest()
    marked["metadata"]["annotations"] = {STARTED_AS_ANNOTATION: "sorting.another-uid"}
    target = MemoryTarget()
    submit(target, parsed(marked), "default")
    assert STARTED_AS_ANNOTATION not in target.objects["default", "sorting"]["metadata"]["annotations"]
