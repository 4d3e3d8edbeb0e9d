from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.rl_operator.samples import inputs_of, own_environment, own_inputs

from generate.kind_examples import EXAMPLES, Example
from generate.kind_pages import kind_pages
from rl_operator.api.names import ENVIRONMENT_KIND, RUN_KIND, RUNTIME_KIND
from rl_operator.check.run_check import check_run
from rl_operator.documents.parse import load_documents, parse_environment, parse_run, parse_runtime

PARSE: dict[str, Callable[[Any], Any]] = {
    RUN_KIND: parse_run,
    RUNTIME_KIND: parse_runtime,
    ENVIRONMENT_KIND: parse_environment,
}
CASES = [(kind, example) for kind, examples in EXAMPLES.items() for example in examples]


@pytest.mark.parametrize(("kind", "example"), CASES, ids=[example.title for _, example in CASES])
def test_examples_are_objects_of_their_kind(kind: str, example: Example) -> None:
    [document] = load_documents(example.text)
    assert PARSE[kind](document)


@pytest.mark.parametrize("example", EXAMPLES[RUN_KIND], ids=lambda example: example.title)
def test_example_runs_are_accepted(example: Example) -> None:
    run = parse_run(load_documents(example.text)[0])
    own = run.spec.environment.startswith("own/")
    assert check_run(run, own_inputs(run, own=own_environment()) if own else inputs_of(run)) == ()


@pytest.mark.parametrize(
    ("page", "row"),
    [
        ("rltrainingrun.md", "| `spec.environment`* | string |  | not empty; at most 253 characters |"),
        ("rltrainingrun.md", "| `spec.backoffLimit` | integer | `3` | at least 0; at most 1000 |"),
        ("rltrainingrun.md", "| `spec.config` | free-form object |"),
        ("rltrainingrun.md", "| `spec.startDeadlineSeconds` | integer, or null | `1800` |"),
        ("rltrainingrun.md", "| `status.attempts[].pod`* | string |"),
        ("rlruntime.md", "| `spec.bounds.env.*.min` | number |"),
        ("rlruntime.md", "| `spec.resources.api.limits` | map to integer or string |"),
        ("rlenvironment.md", "| `spec.source.configMap.name`* | string |"),
    ],
)
def test_rows_contain_path_type_default_and_limits(page: str, row: str) -> None:
    assert any(line.startswith(row) for line in kind_pages()[page].splitlines()), row


def test_every_field_has_its_meaning() -> None:
    for page in kind_pages().values():
        rows = [line for line in page.splitlines() if line.startswith("| `")]
        assert rows
        assert not [row for row in rows if row.endswith("|  |")]
