"""docs/reference/settings.md: every code has its section, and every sentence on the page is really used."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.refusals import ROWS, Row, runtimes
from tests.unit.rl_operator.samples import CATALOG, TINY, load_run, make_run
from tests.unit.rl_operator.strategies import READY_STATUS, STALLED_STATUS

from rl_operator.api.hints import FROZEN
from rl_operator.api.names import RUN_KIND
from rl_operator.api.refusal import Refusal, RefusalCode
from rl_operator.api.run_inputs import ParentRun, RunInputs, choose_environment
from rl_operator.check.run_check import check_run, runtime_not_found
from rl_operator.documents.parse import DocumentError, parse_environment, parse_runtime
from rl_operator.documents.yaml_text import write_yaml

PAGE = Path("docs/reference/settings.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^### |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
EXAMPLES = [
    (code, sentence)
    for code, section in SECTIONS.items()
    for block in re.findall(r"```text\n(.*?)```", section, flags=re.DOTALL)
    for sentence in block.splitlines()
]


def said_of(row: Row) -> Iterator[Refusal]:
    """The refusals of a run of the table."""
    document = row.run()
    document["metadata"]["namespace"] = "{namespace}"
    try:
        run = load_run(write_yaml(document))
    except DocumentError as error:
        yield from error.refusals
        return
    named = {runtime["metadata"]["name"]: parse_runtime(runtime) for runtime in runtimes()}
    if run.spec.runtime not in named:
        yield runtime_not_found(run, [*named, "tiny"])
        return
    runtime = named[run.spec.runtime]
    environment = choose_environment(run.spec.environment, runtime, CATALOG, None)
    start_from = run.spec.start_from
    parent = ParentRun(start_from.run, exists=False) if start_from and start_from.run else None
    yield from check_run(run, RunInputs(runtime, environment, {}, parent))


@pytest.mark.parametrize("title", [title for title, row in ROWS.items() if row.kind == RUN_KIND])
def test_the_table_has_the_operators_words(title: str) -> None:
    first = next(said_of(ROWS[title]))
    assert first.code == ROWS[title].code
    assert ROWS[title].fits(first.sentence, "{namespace}"), first.sentence


def said_of_own(status: dict[str, Any], **spec: Any) -> Iterator[Refusal]:
    """What a run of own/mine reports if the RLEnvironment has this status."""
    kinds = {"apiVersion": "rl-operator.dev/v1alpha1"}
    metadata = {"name": "mine", "namespace": "team-a", "generation": 1}
    source = {"source": {"configMap": {"name": "mine"}}}
    own = {**kinds, "kind": "RLEnvironment", "metadata": metadata, "spec": {**source, **spec}, "status": status}
    run = make_run(environment="own/mine")
    environment = choose_environment("own/mine", TINY, CATALOG, parse_environment(own))
    yield from check_run(run, RunInputs(TINY, environment))


SAID = {
    (refusal.code, refusal.sentence)
    for refusal in (
        *(refusal for row in ROWS.values() for refusal in said_of(row)),
        *said_of_own(STALLED_STATUS),
        *said_of_own(READY_STATUS, secretEnvironment=[{"name": "keys", "key": "JUDGE_KEY"}]),
        *(Refusal(code="FrozenField", field=f"spec.{field}", hint=FROZEN) for field in ("backoffLimit", "config")),
    )
}


def test_every_code_has_its_section_and_an_example() -> None:
    assert set(SECTIONS) == set(get_args(RefusalCode))
    assert {code for code, _ in EXAMPLES} == set(SECTIONS)


@pytest.mark.parametrize(("code", "sentence"), EXAMPLES)
def test_every_sentence_is_really_used(code: str, sentence: str) -> None:
    assert (code, sentence) in SAID, [said for of, said in SAID if of == code]
