import difflib
import re
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.rl_operator.check.lab import LAB, TOY, check
from tests.unit.rl_operator.samples import (
    CATALOG,
    KINDS,
    catalog_of,
    inputs_of,
    inputs_of_kind,
    make_run,
    make_runtime,
    openenv_environment,
    own_environment,
    own_inputs,
)

from rl_operator.api.catalog import AbsentFamily
from rl_operator.api.environment import Environment
from rl_operator.api.refusal import MAX_REFUSALS, Refusal
from rl_operator.api.run_inputs import RunInputs, choose_environment
from rl_operator.api.runtime import BackendPrices, LabelSelector, Runtime
from rl_operator.check.run_check import Same, check_run, runtime_not_found, selects
from rl_operator.documents.parse import MAX_ALIGNED


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"config": {"max_token_length": 64, "color": "blue", "total_steps": 100}},  # equal to locked; at the bound
        {"config": {"max_token_length": 64.0}},
        {"config": {"use_wandb": True}},  # locked to the same, though this environment does not have it
        {"trainer": {"lora_rank": 16, "learning_rate": 0.01, "backend_deadline_seconds": 5}},
        {"startFrom": {"checkpoint": "tinker://x/weights/y"}},
        {"activeDeadlineSeconds": 600},
        {"suspend": True},
        {"config": {"batch_size": 9, "group_size": 3}},
    ],
    ids=str,
)
def test_accepted(spec: dict[str, Any]) -> None:
    assert check(spec) == ()


def test_all_refusals_come_in_a_stable_order() -> None:
    spec = {
        "environment": "toy",
        "config": {"zzz": 1, "aaa": 2, "group_size": 3},
        "trainer": {"lora_rank": 1},
        "activeDeadlineSeconds": 601,
    }
    assert [refusal.field for refusal in check(spec)] == [
        "spec.config.aaa",
        "spec.config.zzz",
        "spec.trainer.lora_rank",
        "spec.config.batch_size",
        "spec.activeDeadlineSeconds",
    ]


@pytest.mark.parametrize(
    ("names", "hint"),
    [(("default", "tiny"), "did you mean 'tiny'? (available: default, tiny)"), ((), "there is none yet")],
)
def test_runtime_not_found(names: tuple[str, ...], hint: str) -> None:
    refusal = runtime_not_found(make_run(runtime="tinny"), names)
    assert (refusal.code, refusal.field, refusal.given) == ("RuntimeNotFound", "spec.runtime", "tinny")
    assert hint in refusal.hint


def test_an_invalid_runtime_is_the_only_reason() -> None:
    """Faults of the run cannot be found while its runtime is not valid."""
    runtime = make_runtime(locked={"trainer": {"lerning_rate": 1}})
    (refusal,) = check_run(make_run(config={"nonsense": 1}), inputs_of(make_run(), runtime))
    assert (refusal.code, refusal.field) == ("RuntimeInvalid", "spec.runtime")
    assert "spec.locked.trainer.lerning_rate" in refusal.hint
    assert "administrator" in refusal.hint


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=3), children, max_size=2),
    max_leaves=4,
)
FIELD_NAMES = st.sampled_from(
    ["total_steps", "group_size", "batch_size", "learning_rate", "seed", "use_wandb", "api_key", "tokenizer_name", "?"]
)
FIELDS = st.dictionaries(FIELD_NAMES, JSON_VALUES, max_size=5)


@settings(max_examples=100)
@given(
    config=FIELDS, trainer=FIELDS, locked=FIELDS, defaults=FIELDS, environment=st.sampled_from(["toy", "x", "own/a"])
)
def test_any_run_and_runtime_is_checked(
    config: dict[str, Any], trainer: dict[str, Any], locked: dict[str, Any], defaults: dict[str, Any], environment: str
) -> None:
    bounds = {"env": {"total_steps": {"max": 10}, "tokenizer_name": {"min": 3}}}
    runtime = make_runtime(locked={"env": locked}, defaults={"env": defaults, "trainer": defaults}, bounds=bounds)
    spec = {"config": config, "trainer": trainer, "environment": environment}
    refusals = check(spec, runtime)
    assert refusals == check(spec, runtime)
    assert all(refusal.hint and refusal.field.startswith("spec.") for refusal in refusals)


def test_tiny_lets_a_learner_change_everything() -> None:
    run = make_run(
        config={"total_steps": 5, "group_size": 4, "batch_size": 16, "max_token_length": 32, "steps_per_eval": 2},
        trainer={"lora_rank": 4, "learning_rate": 1e-2, "loss": "cispo", "seed": 3, "save_checkpoint_interval": 1},
    )
    assert check_run(run, inputs_of(run)) == ()


def test_a_refusal_names_some_of_many_runtimes() -> None:
    names = [f"runtime-{number:03}" for number in range(300)]
    refusal = runtime_not_found(make_run(runtime="runtime-29"), names)
    assert refusal.hint.endswith("runtime-018, runtime-019 and 280 more)")
    assert len(refusal.sentence) < 500


def test_many_misspelled_names_cost_little_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run and its environment may both be hostile, and everybody's checks wait for this one."""
    aligned = []

    class Counting(difflib.SequenceMatcher):  # type: ignore[type-arg]
        def ratio(self) -> float:
            aligned.append(max(len(self.a), len(self.b)))
            return super().ratio()

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    known = ({"name": f"{n:03}{'x_y' * 33}", "type": "int", "default": 1} for n in range(500))
    refusals = check({"config": {f"{n:03}{'y_x' * 33}": 1 for n in range(200)}}, catalog=catalog_of(*known))
    assert len(refusals) == MAX_REFUSALS + 1
    assert 0 < len(aligned) <= (MAX_REFUSALS + 1) * MAX_ALIGNED
    assert max(aligned) == 40


def test_only_the_very_same_object_is_the_same() -> None:
    first, second = make_runtime(), make_runtime()
    assert first == second
    assert Same(first) == Same(first)
    assert Same(first) != Same(second)


def test_work_is_done_once_for_each_object() -> None:
    asked = []

    @lru_cache
    def name_of(runtime: Same[Runtime]) -> str:
        asked.append(runtime.model)
        return runtime.model.metadata.name

    first, second = make_runtime(), make_runtime()
    assert [name_of(Same(each)) for each in (first, first, second, first)] == ["lab"] * 4
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("spec", "code", "hint"),
    [
        ({"startFrom": {}}, "Inconsistent", "exactly one of run and checkpoint"),
        ({"environment": "toi"}, "UnknownEnvironment", "did you mean 'toy'.*available: toy"),
        ({"environment": "./mine.py"}, "UnknownEnvironment", "files are for local mode"),
    ],
)
def test_refused(spec: dict[str, Any], code: str, hint: str) -> None:
    [refusal] = check(spec)
    assert (refusal.code, refusal.field) == (code, f"spec.{next(iter(spec))}")
    assert re.search(hint, refusal.hint), refusal.hint


def test_an_environment_of_an_absent_library_is_refused_with_what_to_do() -> None:
    absent = TOY.with_changes(absent=(AbsentFamily(name="verifiers", hint="install it: rlctl environments install"),))
    [refusal] = check({"environment": "verifiers/echo"}, catalog=absent)
    assert (refusal.code, refusal.field) == ("UnknownEnvironment", "spec.environment")
    assert refusal.hint == "install it: rlctl environments install"
    [other] = check({"environment": "verifier/echo"}, catalog=absent)
    assert "there is no such environment" in other.hint


TOKENS = {"prefill": 0.1, "sample": 0.4, "train": 0.4}


def with_prices(**prices: Any) -> Runtime:
    backend = LAB.spec.backend.with_changes(prices=BackendPrices.model_validate(prices))
    return LAB.with_changes(spec=LAB.spec.with_changes(backend=backend))


BUDGET = {"amount": 20, "currency": "USD"}


def test_a_budget_needs_prices() -> None:
    [refusal] = check({"budget": BUDGET})
    assert (refusal.code, refusal.field, refusal.given) == ("Inconsistent", "spec.budget", None)
    assert "runtime 'lab' has no prices (its spec.backend.prices)" in refusal.hint
    assert check({"budget": BUDGET}, with_prices(**TOKENS)) == ()
    assert check({"budget": BUDGET}, with_prices(models={"bundled": TOKENS})) == ()
    assert check({}) == ()


def test_a_budget_needs_prices_of_the_model() -> None:
    [refusal] = check({"budget": BUDGET}, with_prices(models={"another": TOKENS}))
    assert refusal.field == "spec.budget"
    assert "spec.backend.prices has none for the model bundled" in refusal.hint


def test_a_budget_is_in_the_currency_of_the_prices() -> None:
    [refusal] = check({"budget": BUDGET}, with_prices(**TOKENS, currency="EUR"))
    assert (refusal.field, refusal.given, refusal.allowed) == ("spec.budget.currency", "USD", "EUR")
    assert refusal.sentence == (
        "spec.budget.currency is \"USD\": the prices of runtime 'lab' (its spec.backend.prices) are in EUR: "
        "give the budget in that currency"
    )
    assert check({"budget": {"amount": 20, "currency": "EUR"}}, with_prices(**TOKENS, currency="EUR")) == ()


LABELS = {"team": "ml", "stage": "prod"}


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ({}, True),
        ({"matchLabels": {"team": "ml"}}, True),
        ({"matchLabels": {"team": "ml", "stage": "dev"}}, False),
        ({"matchLabels": {"owner": "ml"}}, False),
        ({"matchLabels": {"owner": ""}}, False),
        ({"matchExpressions": [requirement("team", "In", "web", "ml")]}, True),
        ({"matchExpressions": [requirement("team", "In", "web")]}, False),
        ({"matchExpressions": [requirement("owner", "In", "ml")]}, False),
        ({"matchExpressions": [requirement("team", "NotIn", "web")]}, True),
        ({"matchExpressions": [requirement("team", "NotIn", "web", "ml")]}, False),
        ({"matchExpressions": [requirement("owner", "NotIn", "ml")]}, True),
        ({"matchExpressions": [requirement("team", "Exists")]}, True),
        ({"matchExpressions": [requirement("owner", "Exists")]}, False),
        ({"matchExpressions": [requirement("owner", "DoesNotExist")]}, True),
        ({"matchExpressions": [requirement("team", "DoesNotExist")]}, False),
        ({"matchExpressions": [requirement("team", "Exists"), requirement("stage", "In", "dev")]}, False),
        ({"matchLabels": {"team": "web"}, "matchExpressions": [requirement("stage", "Exists")]}, False),
    ],
    ids=str,
)
def test_selectors_mean_the_same_as_in_kubernetes(selector: dict[str, Any], taken: bool) -> None:
    assert selects(LabelSelector.model_validate(selector), LABELS) is taken


WORDS = st.sampled_from(["", "a", "b", "team", "stage"])
SELECTORS = st.builds(
    LabelSelector,
    match_labels=st.dictionaries(WORDS, WORDS, max_size=2),
    match_expressions=st.lists(
        st.builds(
            dict,
            key=st.sampled_from(["a", "b", "team"]),
            operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
            values=st.lists(WORDS, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)


@given(SELECTORS, st.dictionaries(WORDS, WORDS, max_size=3))
def test_an_operator_and_its_opposite_never_both_match(selector: LabelSelector, labels: dict[str, str]) -> None:
    opposite = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
    for expression in selector.match_expressions:
        turned = expression.with_changes(operator=opposite[expression.operator])
        one, other = LabelSelector(match_expressions=(expression,)), LabelSelector(match_expressions=(turned,))
        assert selects(one, labels) != selects(other, labels)


@pytest.mark.parametrize("labels", [LABELS, {"team": "web"}])
def test_a_namespace_that_is_not_selected_is_refused(labels: dict[str, str]) -> None:
    runtime = make_runtime(namespaceSelector={"matchLabels": {"team": "ml"}})
    inputs = RunInputs(runtime, choose_environment("sort_digits", runtime, CATALOG, None), labels)
    refused = "NamespaceNotAllowed" in {refusal.code for refusal in check_run(make_run(runtime="lab"), inputs)}
    assert refused is (labels is not LABELS)


def refused_secrets(listed: list[dict[str, str]], *asked: tuple[str, str]) -> list[Refusal]:
    run, runtime = make_run(runtime="lab", environment="own/digits"), make_runtime(secretEnvironment=listed)
    own = own_environment(secretEnvironment=[{"name": name, "key": key} for name, key in asked])
    return [r for r in check_run(run, own_inputs(run, runtime, own)) if r.code == "SecretNotAllowed"]


JUDGE = {"name": "judge", "key": "JUDGE_KEY"}


def test_an_own_environment_gets_only_listed_keys() -> None:
    assert refused_secrets([]) == []
    assert refused_secrets([JUDGE, {"name": "search", "key": "K"}], ("judge", "JUDGE_KEY")) == []
    [refusal] = refused_secrets([JUDGE], ("judge", "JUDGE_KEY"), ("judge", "OTHER"), ("tinker", "JUDGE_KEY"))
    assert (refusal.field, refusal.given, refusal.allowed) == ("spec.environment", "own/digits", [JUDGE])
    assert refusal.sentence == (
        'spec.environment is "own/digits": its secretEnvironment asks for key OTHER of Secret judge, '
        "key JUDGE_KEY of Secret tinker, and runtime 'lab' lists key JUDGE_KEY of Secret judge: "
        "take it out of the RLEnvironment, or ask an administrator to list it"
    )


def test_a_runtime_that_lists_no_key_says_so() -> None:
    [refusal] = refused_secrets([], ("judge", "JUDGE_KEY"))
    assert "runtime 'lab' lists no key:" in refusal.hint


def taught(teacher: dict[str, Any] | None, *, own: Environment | None = None, **config: Any) -> list[tuple[str, str]]:
    runtime = make_runtime(**({"teacher": teacher} if teacher else {}))
    run = make_run(runtime="lab", environment="own/digits" if own else "sort_digits", config=config)
    inputs = own_inputs(run, runtime, own) if own else inputs_of(run, runtime)
    return [(r.field, r.code) for r in check_run(run, inputs) if "teacher" in r.field]


TEACHER = {"url": "http://teacher:8100"}
NOT_TAUGHT = [("spec.config.teacher_top_k", "Inconsistent")]
KEYED = TEACHER | {"keySecret": {"name": "teacher", "key": "key"}}


@pytest.mark.parametrize("teacher", [None, TEACHER, KEYED])
@pytest.mark.parametrize("address", ["http://203.0.113.66", "http://teacher:8100", "", None])
def test_a_run_never_names_the_teachers_address(teacher, address) -> None:
    first, *_ = taught(teacher, teacher_url=address, teacher_top_k=1)
    assert first == ("spec.config.teacher_url", "WiredField")


def test_a_teacher_is_asked_where_the_runtime_has_one() -> None:
    assert taught(None, teacher_top_k=4) == NOT_TAUGHT
    assert taught(None) == taught(None, teacher_top_k=0) == taught(TEACHER, teacher_top_k=4) == []
    assert taught(KEYED) == taught(KEYED, teacher_top_k=4) == []


def test_code_of_ones_own_gets_the_teachers_key_only_if_the_runtime_says_so() -> None:
    assert taught(KEYED, own=own_environment(), teacher_top_k=4) == NOT_TAUGHT
    assert taught(TEACHER, own=own_environment(), teacher_top_k=4) == []
    assert taught(KEYED | {"ownEnvironments": True}, own=own_environment(), teacher_top_k=4) == []
    assert taught(KEYED, own=openenv_environment(), teacher_top_k=4) == [], "the code with the key is ours"


@pytest.mark.parametrize(("kind", "own_code"), [(kind, own_code) for kind, (_, _, own_code) in KINDS.items()])
def test_no_kind_of_own_code_gets_the_teachers_key_unasked(kind: str, own_code: bool) -> None:
    for teacher, refused in ((KEYED, own_code), (KEYED | {"ownEnvironments": True}, False), (TEACHER, False)):
        run, inputs = inputs_of_kind(kind, make_runtime(teacher=teacher), config={"teacher_top_k": 4})
        found = [(r.field, r.code) for r in check_run(run, inputs) if "teacher" in r.field]
        assert found == (NOT_TAUGHT if refused else [])


def test_a_default_of_the_environments_own_asks_for_a_teacher_too() -> None:
    fields = [{"name": "teacher_top_k", "type": "int", "default": 4}]
    run, runtime = make_run(runtime="lab", environment="toy"), make_runtime()
    refused = check_run(run, inputs_of(run, runtime, catalog_of(*fields)))
    assert [refusal.field for refusal in refused] == ["spec.config.teacher_top_k"]
