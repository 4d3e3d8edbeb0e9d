"""Whatever the documents are: no exception but DocumentError, helpful refusals, and the same answer every time."""

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.unit.rl_operator.pipeline import Outcome, outcome_of
from tests.unit.rl_operator.samples import load_run
from tests.unit.rl_operator.strategies import (
    ANNOTATIONS,
    ANY_CASES,
    GOOD_CASES,
    JSON,
    SECRET,
    SOUND_ENVIRONMENTS,
    SOUND_RUNS,
    SOUND_RUNTIMES,
    Documents,
    draw,
    drawn,
    mutated,
)

from rl_operator.api.model import ApiModel
from rl_operator.api.refusal import Refusal
from rl_operator.check.field_rules import type_problem
from rl_operator.documents.parse import DocumentError, parse_environment, parse_run, parse_runtime
from rl_operator.documents.yaml_text import write_yaml

pytestmark = pytest.mark.timeout(900)  # RL_EXAMPLES may ask for many
LONGEST_SENTENCE = 1000


def teaches(refusal: Refusal) -> None:
    """A refusal names what is refused, says what to do, and is one line that a status can hold."""
    assert refusal.field or refusal.code == "InvalidDocument", refusal
    assert refusal.hint, refusal
    assert not any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in refusal.sentence), refusal.sentence
    assert len(refusal.sentence) <= LONGEST_SENTENCE, refusal.sentence
    assert SECRET not in json.dumps(refusal.to_wire()), refusal
    assert SECRET not in refusal.sentence, refusal


def reordered(value: Any) -> Any:
    """The same JSON with the keys of every mapping in the opposite order."""
    match value:
        case dict():
            return {key: reordered(item) for key, item in reversed(value.items())}
        case list():
            return [reordered(item) for item in value]
    return value


def kind_of(outcome: Outcome) -> str:
    return outcome.refused[0].code if outcome.refused else "accepted" if outcome.accepted else "waits"


@drawn(2)
@given(ANY_CASES)
def test_any_case_is_refused_with_a_reason_or_rendered(case: dict[str, Any]) -> None:
    outcome = outcome_of(case)
    event(kind_of(outcome))
    for refusal in outcome.refused:
        teaches(refusal)
    assert outcome.to_wire() == outcome_of(reordered(case)).to_wire()
    json.dumps(outcome.to_wire(), allow_nan=False)


@drawn()
@given(GOOD_CASES)
def test_fitting_values_are_accepted(case: dict[str, Any]) -> None:
    outcome = outcome_of(case)
    if case["own"] is None and case["run"]["spec"]["environment"] == "own/mine":
        assert [refusal.code for refusal in outcome.refused] == ["UnknownEnvironment"]
    else:
        assert outcome.accepted, outcome.refused
    assert outcome.to_wire() == outcome_of(reordered(case)).to_wire()


KINDS: dict[str, tuple[Callable[[Any], ApiModel], Documents]] = {
    "run": (parse_run, SOUND_RUNS),
    "runtime": (parse_runtime, SOUND_RUNTIMES),
    "environment": (parse_environment, SOUND_ENVIRONMENTS),
}


@drawn()
@given(st.sampled_from(list(KINDS)), st.data())
def test_any_document_is_typed_or_refused_with_a_reason(kind: str, data: st.DataObject) -> None:
    parse, sound = KINDS[kind]
    try:
        parsed = parse(data.draw(mutated(sound, most=5)))
    except DocumentError as error:
        event(error.refusal.code)
        for refusal in error.refusals:
            teaches(refusal)
    else:
        event("typed")
        assert parse(parsed.to_wire()) == parsed


@drawn()
@given(
    mutated(SOUND_RUNS, most=3) | st.fixed_dictionaries({"kind": st.just("List"), "items": JSON}),
    st.lists(st.tuples(st.integers(0, 2**16), st.text(max_size=3)), max_size=3),
)
def test_any_file_is_a_run_or_refused_with_a_reason(document: dict[str, Any], edits: list[tuple[int, str]]) -> None:
    """A run's file overwritten with random texts: mostly no longer YAML, or something else."""
    text = write_yaml(document).replace(SECRET, "no-key")
    for place, written in edits:
        at = place % (len(text) + 1)
        text = text[:at] + written + text[at + len(written) :]
    try:
        load_run(text)
    except DocumentError as error:
        for refusal in error.refusals:
            teaches(refusal)


@drawn()
@given(JSON, ANNOTATIONS)
def test_any_value_fits_any_annotation_or_not(value: Any, annotation: str) -> None:
    problem = type_problem(value, annotation)
    assert problem is None or problem.isprintable()


@pytest.mark.process
def test_every_process_gives_the_same_answer() -> None:
    """Sets of strings have another order in each process unless they are sorted."""
    cases = [*draw(ANY_CASES, 80), *draw(GOOD_CASES, 20)]
    answer = subprocess.run(
        [sys.executable, "-m", "tests.unit.rl_operator.pipeline"],
        input=json.dumps(cases),
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert json.loads(answer.stdout) == [outcome_of(case).to_wire() for case in cases]
