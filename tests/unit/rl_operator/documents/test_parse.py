import contextlib
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import run_document

from rl_operator.api.refusal import MAX_REFUSALS, REST_UNCHECKED
from rl_operator.documents.parse import (
    MAX_COMPARED,
    DocumentError,
    field_path,
    load_documents,
    load_run,
    nearest,
    parse_run,
    parse_runtime,
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


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    document = run_document(config={"a": "x" * 900_000}, trainer={f"f{n}": 1 for n in range(10_000)})
    with pytest.raises(DocumentError) as caught:
        parse_run(document)
    assert [(r.code, r.field) for r in caught.value.refusals] == [
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


def test_the_check_of_a_file_stops_after_some_faults() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_run(run_document(**{f"field{n}": 1 for n in range(1_000)}))
    assert len(caught.value.refusals) == MAX_REFUSALS + 1
    assert caught.value.refusals[-1] == REST_UNCHECKED
    assert str(caught.value).endswith("the check stopped after 20 refusals: correct these, and the rest is checked")


def test_a_name_is_compared_with_a_bounded_number_of_others() -> None:
    others = [f"{n:0100000d}" for n in range(MAX_COMPARED)]
    assert nearest("group_sise", [*others[1:], "group_size"]) == "; did you mean 'group_size'?"
    assert nearest("group_sise", [*others, "group_size"]) == ""


@pytest.mark.parametrize("file", sorted(Path("examples").glob("sorting*.yaml")), ids=str)
def test_examples_are_runs(file: Path) -> None:
    run = load_run(file.read_text())
    assert run.spec.trainer == {"learning_rate": 0.001}
    assert run.key == ("default", "sorting")


@pytest.mark.parametrize(
    ("path", "value", "code", "field", "hint"),
    [
        ("spec.environmnt", "x", "UnknownField", "spec.environmnt", "did you mean 'environment' or"),
        ("spec.wandb", {"projekt": "x"}, "UnknownField", "spec.wandb.projekt", "did you mean 'project'?"),
        (
            "spec.startFrom",
            {"checkpoimt": "x"},
            "UnknownField",
            "spec.startFrom.checkpoimt",
            "did you mean 'checkpoint'",
        ),
        ("spec.config", ["x"], "WrongType", "spec.config", "it must be a mapping"),
        ("spec.environment", 3, "WrongType", "spec.environment", "it must be a string"),
        ("spec.environment", "", "OutOfBounds", "spec.environment", "it must be at least 1 character long"),
        ("spec.backoffLimit", "3", "WrongType", "spec.backoffLimit", "it must be an integer"),
        ("spec.backoffLimit", -1, "OutOfBounds", "spec.backoffLimit", "it must be at least 0"),
        ("spec.backoffLimit", 1.5, "WrongType", "spec.backoffLimit", "it must be an integer"),
        ("spec.suspend", "yes", "WrongType", "spec.suspend", "it must be true or false"),
        ("spec.wandb.tags", ["a", 1], "WrongType", "spec.wandb.tags[1]", "it must be a string"),
        (
            "spec.wandb.tags",
            ["a,b"],
            "WrongType",
            "spec.wandb.tags[0]",
            "it must be a string of 1 to 64 characters without a comma",
        ),
        (
            "spec.startFrom",
            {"checkpoint": "/tmp/x"},
            "WrongType",
            "spec.startFrom.checkpoint",
            "a path that begins with tinker://",
        ),
        ("kind", "Job", "InvalidDocument", "kind", "kind must be RLTrainingRun"),
        ("apiVersion", "v1", "InvalidDocument", "apiVersion", "must be rl-operator.dev/v1alpha1"),
        ("metadata.name", "Sorting", "InvalidName", "metadata.name", "a letter first"),
        ("metadata.name", "1st", "InvalidName", "metadata.name", "a letter first"),
        ("metadata.name", "a-", "InvalidName", "metadata.name", "no '-' at the end"),
        ("metadata.name", "a\n", "InvalidName", "metadata.name", "a letter first"),
        ("metadata.name", "a" * 53, "InvalidName", "metadata.name", "here 53 characters"),
    ],
)
def test_each_fault_names_its_field(path: str, value: Any, code: str, field: str, hint: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_run(changed(path, value))
    refusal = caught.value.refusal
    assert (refusal.code, refusal.field) == (code, field)
    assert hint in refusal.hint
    assert hint in str(caught.value)


def test_the_longest_name_is_accepted() -> None:
    assert parse_run(changed("metadata.name", "a" * 52)).metadata.name == "a" * 52


def test_a_missing_field_is_named() -> None:
    document = run_document()
    del document["spec"]["environment"]
    with pytest.raises(DocumentError) as caught:
        parse_run(document)
    assert [(r.code, r.field) for r in caught.value.refusals] == [("MissingField", "spec.environment")]


def test_all_faults_are_reported_at_once() -> None:
    document = run_document(backoffLimit="3", color="red")
    with pytest.raises(DocumentError) as caught:
        parse_run(document)
    assert {r.field for r in caught.value.refusals} == {"spec.backoffLimit", "spec.color"}


def test_a_key_is_not_repeated() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_run(run_document(TINKER_API_KEY="tml-very-secret"))
    assert "very-secret" not in str(caught.value) + str(caught.value.refusal.to_wire())


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


def test_a_runtime_with_an_unknown_bound_is_refused_by_name() -> None:
    document = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLRuntime",
        "metadata": {"name": "r"},
        "spec": {"image": "i", "bounds": {"env": {"total_steps": {"mx": 3}}}},
    }
    with pytest.raises(DocumentError, match="did you mean 'max'") as caught:
        parse_runtime(document)
    assert caught.value.refusal.field == "spec.bounds.env.total_steps.mx"


def test_a_bound_that_is_nested_as_its_field_is_told_the_fields_name() -> None:
    document = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLRuntime",
        "metadata": {"name": "r"},
        "spec": {"image": "i", "bounds": {"env": {"taskset": {"size": {"max": 3}}}}},
    }
    with pytest.raises(DocumentError, match=r'named with a dot: "taskset\.size"'):
        parse_runtime(document)


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("size", ["taskset.size", "total_steps"], "; did you mean 'taskset.size'?"),
        ("taskset.sizes", ["taskset.size", "taskset.level", "seed"], "; did you mean 'taskset.size'?"),
        ("taskset.total_steps", ["taskset.size", "total_steps"], "; did you mean 'total_steps'?"),
        ("taskset.color", ["taskset.size", "taskset.level"], ""),
        ("verifiers/pokr", ["verifiers/poker", "verifiers/sorting"], "; did you mean 'verifiers/poker'?"),
        ("verifirs/poker", ["verifiers/poker", "verifiers/sorting"], "; did you mean 'verifiers/poker'"),
    ],
)
def test_of_a_name_with_parts_the_last_one_is_compared(name: str, known: list[str], said: str) -> None:
    assert nearest(name, known).startswith(said)
    assert bool(nearest(name, known)) is bool(said)


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("tinker", ["trainer", "timer"], "; it is called 'trainer'"),
        ("tinker.seed", ["trainer.seed"], "; it is called 'trainer.seed'"),
        ("tinker.kl_base_coef", ["trainer.kl_penalty_coef"], "; it is called 'trainer.kl_penalty_coef'"),
        ("statePath", ["run", "checkpoint"], "; it is called 'checkpoint'"),
        ("statePath", ["run"], ""),
    ],
)
def test_an_old_name_is_answered_with_the_new_one(name: str, known: list[str], said: str) -> None:
    assert nearest(name, known) == said


@given(JSON_VALUES)
def test_any_spec_is_typed_or_refused(spec: Any) -> None:
    with contextlib.suppress(DocumentError):
        parse_run(run_document() | {"spec": spec})


@given(st.text())
def test_any_text_is_loaded_or_refused(text: str) -> None:
    with contextlib.suppress(DocumentError):
        load_documents(text)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("group_size", "spec.group_size"),
        ("x-y", "spec.x-y"),
        ("", 'spec[""]'),
        ("a.b", 'spec["a.b"]'),
        ("a\nb", 'spec["a\\nb"]'),
        ("a\u2028b", 'spec["a\\u2028b"]'),
    ],
)
def test_a_path_is_one_line_whatever_its_keys_are(key: str, path: str) -> None:
    assert field_path(("spec", key)) == path


def test_the_path_of_a_long_key_is_cut() -> None:
    assert len(field_path(("spec", "x" * 1000))) < 200


def test_faults_have_a_fixed_order() -> None:
    document = run_document(zebra=1, apple=2)
    turned = {**document, "spec": dict(reversed(document["spec"].items()))}
    for broken in (document, turned):
        with pytest.raises(DocumentError) as caught:
            parse_run(broken)
        assert [refusal.field for refusal in caught.value.refusals] == ["spec.apple", "spec.zebra"]


def test_a_list_holds_objects() -> None:
    with pytest.raises(DocumentError, match="not a Kubernetes object"):
        load_documents("{kind: List, items: [1]}")


def test_a_kind_is_repeated_in_one_line_and_never_when_it_looks_like_a_key() -> None:
    with pytest.raises(DocumentError, match=r'but it holds "\(not shown\)", "a\\nb", Job$'):
        load_run('kind: "a\\nb"\n---\nkind: Job\n---\nkind: tml-0123456789abcdefghij\n')


def test_no_deadline_remains_no_deadline() -> None:
    """Null is not the same as absent where there is a default."""
    run = parse_run(run_document(startDeadlineSeconds=None))
    assert parse_run(run.to_wire()).spec.start_deadline_seconds is None
    assert "activeDeadlineSeconds" not in run.to_wire()["spec"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("zzz", ""),
        ("batch_siz", "; did you mean 'batch_size'?"),
        ("max_tokens", "; did you mean 'max_token' or 'max_tok'?"),
        ("step", "; did you mean 'steps', 'tep' or 'ste'?"),
        ("x" * 100_000, ""),
    ],
)
def test_the_nearest_three_are_named(name: str, hint: str) -> None:
    known = {"zzz": ["lora_rank"], "max_tokens": ["max_tok", "max_token"], "step": ["ste", "stop", "steps", "tep"]}
    assert nearest(name, known.get(name, ["batch_size", "loss"])) == hint


def test_a_budget_without_a_currency_is_told_how_to_write_it() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_run(run_document(budget=20))
    assert caught.value.refusal.sentence == (
        "spec.budget is 20: it has an amount and a currency: write {amount: 20, currency: USD}"
    )
