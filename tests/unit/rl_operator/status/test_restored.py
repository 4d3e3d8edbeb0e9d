from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import NOW, RUNNING, STARTED, make_run

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.api.run import TrainingRun
from rl_operator.status.derive import derive
from rl_operator.status.lifecycle import Verb, decide, find, next_look
from rl_operator.status.restored import is_restored, mark_of
from rl_operator.status.view import View

CHECKPOINT = {"step": 12, "statePath": "tinker://m/weights/12"}


def marked(mark: str | None, status: dict[str, Any] | None = None, **spec: Any) -> TrainingRun:
    run = make_run(status, **spec)
    annotations = {} if mark is None else {STARTED_AS_ANNOTATION: mark}
    return run.with_changes(metadata=run.metadata.with_changes(annotations=annotations))


@pytest.mark.parametrize(
    ("mark", "restored"),
    [(None, False), ("sorting.u-1", False), ("sorting.another", True), ("other.another", False), ("nonsense", False)],
)
def test_its_own_name_with_another_uid_says_that_a_run_was_restored(mark: str | None, restored: bool) -> None:
    assert is_restored(marked(mark)) is restored
    assert is_restored(marked(mark, RUNNING)) is restored, "whatever its status says"


def test_the_mark_of_a_run_is_its_own() -> None:
    run = make_run()
    assert mark_of(run) == "sorting.u-1"
    assert not is_restored(marked(mark_of(run)))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_run_is_finished_by_its_status(phase: str) -> None:
    assert not is_restored(marked("sorting.another", {**STARTED, "phase": phase}))


@pytest.mark.parametrize("status", [None, STARTED, RUNNING])
def test_a_restored_run_rests_and_says_how_to_run_it_again(status: dict[str, Any] | None) -> None:
    view = View(marked("sorting.another", status), NOW, 10.0)
    finding = find(view)
    written = derive(view, finding)
    assert decide(view) is Verb.REST
    assert (finding.reason, written.phase, next_look(view, finding)) == ("Restored", "Stopped", None)
    assert {c.type: c.status for c in written.conditions} == {"Accepted": "True", "Suspended": "True"}
    assert "`rlctl resume sorting`" in finding.message
    assert "`kubectl -n team-a annotate rlrun sorting rl-operator.dev/started-as-`" in finding.message


def test_what_a_restored_status_says_of_a_former_life_is_forgotten_except_for_its_checkpoint() -> None:
    former = {**RUNNING, "checkpoint": CHECKPOINT, "failedAttempts": 2, "historyName": "h"}
    view = View(marked("sorting.another", former), NOW, 10.0)
    finding = find(view)
    written = derive(view, finding)
    assert "startFrom.statePath: tinker://m/weights/12" in finding.message
    assert written.checkpoint is not None
    assert (written.start_time, written.attempt, written.pod_name, written.config_map_name, written.history_name) == (
        STARTED["startTime"], None, None, None, None,
    )  # fmt: skip
    again = View(view.run.with_changes(status=written), NOW, 10.0)
    assert derive(again, find(again)) == written, "written once"


def test_without_its_mark_it_starts_from_the_beginning() -> None:
    restored = View(marked("sorting.another", RUNNING), NOW, 10.0)
    rested = derive(restored, find(restored)).to_wire()
    assert decide(View(make_run(rested), NOW, 10.0)) is Verb.START
    suspended = View(make_run(rested, suspend=True), NOW, 10.0)
    assert (decide(suspended), find(suspended).reason) == (Verb.REST, "Stopped")
    assert derive(suspended, find(suspended)).attempts == ()
