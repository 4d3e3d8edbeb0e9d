import contextlib
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import load_run, make_runtime, run_document

from rl_operator.api.refusal import MAX_REFUSALS, REST_UNCHECKED, Refusal
from rl_operator.documents.parse import (
    MAX_COMPARED,
    DocumentError,
    load_documents,
    nearest,
    parse_run,
    parse_stored_run,
)
from rl_operator.documents.yaml_text import write_yaml

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)


def changed(path: str, value: Any) -> dict[str, Any]:
    document = deepcopy(run_document())
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    return document


def refused(document: dict[str, Any]) -> tuple[Refusal, ...]:
    with pytest.raises(DocumentError) as caught:
        parse_run(document)
    assert str(caught.value) == "\n".join(refusal.sentence for refusal in caught.value.refusals)
    return caught.value.refusals


@pytest.mark.parametrize(
    ("path", "value", "code", "field", "hint"),
    [
        ("spec.wandb", {"projekt": "x"}, "UnknownField", "spec.wandb.projekt", "did you mean 'project'?"),
        ("spec.config", ["x"], "WrongType", "spec.config", "it must be a mapping"),
        ("spec.environment", "", "OutOfBounds", "spec.environment", "it must be at least 1 character long"),
        ("spec.backoffLimit", 1.5, "WrongType", "spec.backoffLimit", "it must be an integer"),
        ("spec.wandb.tags", ["a", 1], "WrongType", "spec.wandb.tags[1]", "it must be a string"),
        ("spec.wandb.tags", ["a,b"], "WrongType", "spec.wandb.tags[0]", "a string of 1 to 64 characters without"),
        ("spec.startFrom.checkpoint", "/tmp/x", "WrongType", "spec.startFrom.checkpoint", "begins with tinker://"),
        ("spec.budget", 20, "WrongType", "spec.budget", "write {amount: 20, currency: USD}"),
        ("kind", "Job", "InvalidDocument", "kind", "kind must be RLTrainingRun"),
        ("apiVersion", "v1", "InvalidDocument", "apiVersion", "must be rl-operator.dev/v1alpha1"),
        ("metadata.name", "Sorting", "InvalidName", "metadata.name", "a letter first"),
        ("metadata.name", "a-", "InvalidName", "metadata.name", "no '-' at the end"),
        ("metadata.name", "a\n", "InvalidName", "metadata.name", "a letter first"),
        ("metadata.name", "a" * 53, "InvalidName", "metadata.name", "here 53 characters"),
    ],
)
def test_each_fault_names_its_field(path: str, value: Any, code: str, field: str, hint: str) -> None:
    [refusal] = refused(changed(path, value))
    assert (refusal.code, refusal.field) == (code, field)
    assert hint in refusal.hint


def test_all_faults_are_reported_in_a_fixed_order() -> None:
    document = run_document(zebra=1, apple=2, backoffLimit="3")
    turned = {**document, "spec": dict(reversed(document["spec"].items()))}
    for broken in (document, turned):
        assert [each.field for each in refused(broken)] == ["spec.backoffLimit", "spec.apple", "spec.zebra"]


def test_the_check_of_a_file_stops_after_some_faults() -> None:
    refusals = refused(run_document(**{f"field{n}": 1 for n in range(1_000)}))
    assert len(refusals) == MAX_REFUSALS + 1
    assert refusals[-1] == REST_UNCHECKED


def test_a_key_is_not_repeated() -> None:
    assert "very-secret" not in str(
        [each.to_wire() for each in refused(run_document(TINKER_API_KEY="tml-very-secret"))]
    )


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ({"total_steps": {"mx": 3}}, r"spec\.bounds\.env\.total_steps\.mx is 3: .* did you mean 'max'"),
        ({"taskset": {"size": {"max": 3}}}, r'named with a dot: "taskset\.size"'),
    ],
)
def test_a_bound_has_a_minimum_and_a_maximum(bound: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        make_runtime(bounds={"env": bound})


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    document = run_document(config={"a": "x" * 900_000}, trainer={f"f{n}": 1 for n in range(10_000)})
    assert [(each.code, each.field) for each in refused(document)] == [
        ("OutOfBounds", "spec.config.a"),
        ("OutOfBounds", "spec.trainer"),
    ]


def test_a_stored_run_keeps_what_is_not_too_large() -> None:
    labels = {f"a{n}": "" for n in range(30_000)} | {"kueue.x-k8s.io/queue-name": "q"}
    document = run_document(config={"total_steps": 4}, trainer={f"f{n}": 1 for n in range(10_000)})
    document["metadata"] |= {"labels": labels, "finalizers": ["a/b"] * 10_000}
    run = parse_stored_run(document)
    assert (run.spec.config, run.spec.trainer) == ({"total_steps": 4}, {})
    assert run.metadata.labels == {"kueue.x-k8s.io/queue-name": "q"}
    assert [fault.sentence for fault in run.faults] == [
        "metadata.labels: it has 30001 of them, and at most 256 are allowed: remove some",
        "spec.trainer: it has 10000 fields, and at most 256 are allowed: leave out the others",
    ]


WORST: dict[str, dict[str, Any]] = {
    "10,000 fields": {f"group_sise_{n}": 1 for n in range(10_000)},
    "a long text": {"a": "x" * 900_000},
    "a long text that looks like names of secrets": {"a": ["password" * 112_000]},
    "many lists": dict.fromkeys((f"f{n}" for n in range(250)), [[]] * 1_000),
    "many texts": {f"f{n}": "x" * 5_000 for n in range(180)},
    "the most values that are read": {f"f{n}": list(range(100)) for n in range(95)},
    "the longest texts that are read": {f"f{n}": "\u20ac" * 49_000 for n in range(4)},
    "ideographs and line ends": {f"f{n}": "\u6f22\u5b57\n" * 16_000 for n in range(3)},
    "emoji": {f"f{n}": "\U0001f600" * 47_500 for n in range(4)},
    "odd characters": {f"f{n}": "\U000e0001" * 1_900 for n in range(10)},
}


@pytest.mark.parametrize("settings", WORST.values(), ids=WORST)
def test_no_settings_hold_up_the_loop_that_reads_them(settings: dict[str, Any]) -> None:
    """Processor time of this thread, ten times what the largest take: what grows faster than a document fails here."""
    document = run_document(config=settings, trainer=settings)
    began = time.thread_time()
    parse_stored_run(document)
    assert time.thread_time() - began < 1.0


@pytest.mark.parametrize("file", sorted(Path("examples").glob("sorting*.yaml")), ids=str)
def test_examples_are_runs(file: Path) -> None:
    run = load_run(file.read_text())
    assert run.spec.trainer == {"learning_rate": 0.001}
    assert run.key == ("default", "sorting")


def test_the_longest_name_is_accepted() -> None:
    assert parse_run(changed("metadata.name", "a" * 52)).metadata.name == "a" * 52


def test_integers_are_integers_however_they_are_written() -> None:
    assert parse_run(run_document(backoffLimit=2.0, config={"a": 1.0})).spec.config == {"a": 1}


def test_a_status_of_a_newer_release_is_read() -> None:
    document = run_document() | {"status": {"observedGeneration": 2, "phase": "Running", "mood": "good"}}
    assert parse_run(document).status.phase == "Running"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "not readable YAML"),
        ("just words", "this is not a Kubernetes object"),
        ("", "^kind: the file must hold exactly one RLTrainingRun .* but it holds nothing"),
        ("kind: Job", "it holds Job"),
        ("kind: RLTrainingRun\n---\nkind: RLTrainingRun", "it holds 2 of them"),
        ("{kind: List, items: [1]}", "not a Kubernetes object"),
        (
            'kind: "a\\nb"\n---\nkind: Job\n---\nkind: tml-0123456789abcdefghij\n',
            r'holds "\(not shown\)", "a\\nb", Job$',
        ),
    ],
)
def test_a_file_without_a_run_says_what_it_holds(text: str, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        load_run(text)


def test_other_objects_next_to_the_run_are_skipped() -> None:
    text = "kind: Secret\n---\n" + write_yaml(run_document())
    assert load_run(text).metadata.name == "sorting"


def test_a_list_is_unpacked() -> None:
    text = write_yaml({"apiVersion": "v1", "kind": "List", "items": [run_document(), run_document()]})
    assert [document["kind"] for document in load_documents(text)] == ["RLTrainingRun"] * 2


@given(JSON_VALUES)
def test_any_spec_is_typed_or_refused(spec: Any) -> None:
    with contextlib.suppress(DocumentError):
        parse_run(run_document() | {"spec": spec})


@given(st.text())
def test_any_text_is_loaded_or_refused(text: str) -> None:
    with contextlib.suppress(DocumentError):
        load_documents(text)


def test_no_deadline_remains_no_deadline() -> None:
    """Null is not the same as absent where there is a default."""
    run = parse_run(run_document(startDeadlineSeconds=None))
    assert parse_run(run.to_wire()).spec.start_deadline_seconds is None
    assert "activeDeadlineSeconds" not in run.to_wire()["spec"]


LONG = [f"{n:0100000d}" for n in range(MAX_COMPARED)]
"""As many names as are compared with one."""


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("zzz", ["lora_rank"], ""),
        ("batch_siz", ["batch_size", "loss"], "; did you mean 'batch_size'?"),
        ("max_tokens", ["max_tok", "max_token"], "; did you mean 'max_token' or 'max_tok'?"),
        ("step", ["ste", "stop", "steps", "tep"], "; did you mean 'steps', 'tep' or 'ste'?"),
        ("x" * 100_000, ["batch_size", "loss"], ""),
        ("group_sise", [*LONG[1:], "group_size"], "; did you mean 'group_size'?"),
        ("group_sise", [*LONG, "group_size"], ""),
        # Of a name with parts the last one is compared.
        ("size", ["taskset.size", "total_steps"], "; did you mean 'taskset.size'?"),
        ("taskset.sizes", ["taskset.size", "taskset.level", "seed"], "; did you mean 'taskset.size'?"),
        ("taskset.total_steps", ["taskset.size", "total_steps"], "; did you mean 'total_steps'?"),
        ("taskset.color", ["taskset.size", "taskset.level"], ""),
        ("verifiers/pokr", ["verifiers/poker", "verifiers/sorting"], "; did you mean 'verifiers/poker'?"),
        ("verifirs/poker", ["verifiers/poker"], "; did you mean 'verifiers/poker'?"),
        # An old name is answered with the new one.
        ("tinker", ["trainer", "timer"], "; it is called 'trainer'"),
        ("tinker.kl_base_coef", ["trainer.kl_penalty_coef"], "; it is called 'trainer.kl_penalty_coef'"),
        ("statePath", ["run"], ""),
    ],
    ids=range(16),
)
def test_the_nearest_names_are_said(name: str, known: list[str], said: str) -> None:
    assert nearest(name, known) == said
