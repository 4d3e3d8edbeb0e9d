from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.status.builders import NOW, STARTED, make_run, make_view

from rl_operator.api.run import TrainingRun
from rl_operator.api.status_fields import RunStatus
from rl_operator.documents.parse import parse_stored_run
from rl_operator.documents.yaml_text import json_value
from rl_operator.status.attempt.view import View
from rl_operator.status.derive import derive, started
from rl_operator.status.frozen import frozen_refusals, frozen_settings
from rl_operator.status.lifecycle import assess

SPEC = {"config": {"group_size": 8, "names": ["a", "b"]}, "tinker": {"learning_rate": 1e-3}}


def edited(**spec: Any) -> TrainingRun:
    """A run that started with SPEC and has this spec now."""
    run = make_run(STARTED, **SPEC)
    status = run.status.with_changes(frozen=frozen_settings(run.spec))
    return make_run(status.to_wire(), **spec)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (SPEC, []),
        ({**SPEC, "config": {"names": ["a", "b"], "group_size": 8.0}}, []),
        ({**SPEC, "suspend": True, "environmentReplicas": 3}, []),
        ({**SPEC, "config": {"group_size": 9, "names": ["a", "b"]}}, ["spec.config"]),
        ({**SPEC, "config": {"group_size": 8, "names": ["b", "a"]}}, ["spec.config"]),
        ({"config": SPEC["config"]}, ["spec.tinker"]),
        ({"config": {"group_size": True}, "tinker": {"learning_rate": "0.001"}}, ["spec.config", "spec.tinker"]),
    ],
    ids=str,
)
def test_edits_after_the_start(spec: dict[str, Any], fields: list[str]) -> None:
    refusals = frozen_refusals(edited(**spec))
    assert [r.field for r in refusals] == fields
    assert {r.code for r in refusals} <= {"FrozenField"}


def test_what_is_too_large_to_be_read_counts_as_unedited() -> None:
    run = edited(config={"group_size": 9}, tinker={"learning_rate": "x" * 900_000})
    assert [r.field for r in frozen_refusals(parse_stored_run(run.to_wire()))] == ["spec.config"]


def test_the_sentence_matches_the_api_servers() -> None:
    [refusal] = frozen_refusals(edited(config=SPEC["config"]))
    assert refusal.sentence == (
        "spec.tinker: it is frozen since the run started: make a new run for other settings"
    )  # tests/integration/cluster/test_crds.py expects it of the typed fields


def test_a_run_that_has_not_started_may_be_edited() -> None:
    assert frozen_refusals(make_run(**SPEC)) == ()


def test_a_run_without_frozen_settings_is_left_alone() -> None:
    """As stored before statuses had one."""
    assert frozen_refusals(make_run(STARTED, **SPEC)) == ()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_settings_stored_by_the_api_server_are_the_same(config: dict[str, Any]) -> None:
    run = make_run(config=config)
    stored = make_run(config=json_value(dict(reversed(config.items()))))
    assert frozen_settings(run.spec) == frozen_settings(stored.spec)


def start(view: View) -> RunStatus:
    return started(view, attempt=2, pod_name="p", config_map_name="c", config_hash="h")


def test_the_start_freezes_settings_and_the_next_attempt_keeps_them() -> None:
    first = start(make_view(spec=SPEC))
    assert first.frozen == frozen_settings(make_run(**SPEC).spec)
    run = edited(config={})
    view = View(run, NOW, 10.0, refusals=frozen_refusals(run))
    again = start(view)
    assert again.frozen == first.frozen
    assert [r.field for r in again.refusals] == ["spec.config", "spec.tinker"]


def test_phase_and_conditions_are_those_of_an_unedited_run() -> None:
    edit, plain = edited(config={}), edited(**SPEC)
    views = [View(run, NOW, 10.0, refusals=frozen_refusals(run)) for run in (edit, plain)]
    said = [derive(view, assess(view)) for view in views]
    assert said[0].with_changes(refusals=()) == said[1]
    assert len(said[0].refusals) == 2
