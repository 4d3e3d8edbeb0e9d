"""Objects as earlier releases stored them, and as newer ones will, are read and served by this one.

tests/data/stored holds what releases wrote: runs in every phase, the runtimes that shipped.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.samples import inputs_of
from tests.unit.rl_operator.status.builders import NOW

from rl_operator.check.run_check import check_run
from rl_operator.documents.parse import parse_run, parse_runtime
from rl_operator.render.manifests import render_run
from rl_operator.status.attempt.view import View
from rl_operator.status.derived_status import derive
from rl_operator.status.phase_and_action import assess, decide

STORED = Path("tests/data/stored")
RUNS = [run for file in sorted(STORED.glob("*-runs.json")) for run in json.loads(file.read_text())]
RUNTIMES = [runtime for file in sorted(STORED.glob("*-runtimes.json")) for runtime in json.loads(file.read_text())]
RUN_IDS = [run["metadata"]["annotations"]["example.com/golden"].removesuffix(".json") for run in RUNS]


def values_in(value: Any) -> Iterator[Any]:
    """Every value that is neither a mapping nor a list."""
    match value:
        case dict():
            yield from (leaf for item in value.values() for leaf in values_in(item))
        case list():
            yield from (leaf for item in value for leaf in values_in(item))
        case _:
            yield value


FREE_FORM = ("given", "allowed", "locked")
"""Of a refusal: whatever the user wrote."""


def of_the_future(value: Any) -> Any:
    """The same with an additional field in every mapping."""
    match value:
        case dict():
            known = {key: item if key in FREE_FORM else of_the_future(item) for key, item in value.items()}
            return {**known, "fieldOfTheFuture": {"x": 1}}
        case list():
            return [of_the_future(item) for item in value]
    return value


@pytest.mark.parametrize("document", RUNS, ids=RUN_IDS)
def test_a_stored_run_is_read_whole_and_gets_a_status(document: dict[str, Any]) -> None:
    run = parse_run(document)
    wire = run.to_wire()
    missing = [leaf for leaf in values_in(document["status"]) if leaf not in list(values_in(wire["status"]))]
    assert not missing, "nothing that was said is lost"
    view = View(run, NOW, 10.0)
    decide(view)
    assert derive(view, assess(view)).phase


@pytest.mark.parametrize("document", RUNS[:3], ids=RUN_IDS[:3])
def test_a_stored_run_is_checked_and_rendered(document: dict[str, Any]) -> None:
    run = parse_run(document)
    inputs = inputs_of(run)
    assert check_run(run, inputs) == ()
    assert render_run(run, inputs).config["env"]["total_steps"] == 40


@pytest.mark.parametrize("document", RUNTIMES, ids=lambda document: document["metadata"]["name"])
def test_a_stored_runtime_is_usable_by_runs(document: dict[str, Any]) -> None:
    runtime = parse_runtime(document)
    run = parse_run(RUNS[0] | {"spec": {"environment": "sort_digits", "runtime": runtime.metadata.name}})
    assert check_run(run, inputs_of(run, runtime)) == ()


@pytest.mark.parametrize("document", RUNS, ids=RUN_IDS)
def test_unknown_status_fields_of_a_newer_release_are_ignored(document: dict[str, Any]) -> None:
    newer = document | {"status": of_the_future(document["status"])}
    assert parse_run(newer).status == parse_run(document).status
