"""Random runs at admission and in the operator: both accept the same runs and refuse the same fields."""

from typing import Any

import pytest
from hypothesis import strategies as st
from tests.integration.cluster.admin import RUNTIMES, AdminClient
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.policies import door
from tests.integration.cluster.polling import wait_for
from tests.unit.rl_operator.samples import CATALOG
from tests.unit.rl_operator.strategies import JSON, KEYS, draw

from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import RunInputs, choose_environment
from rl_operator.check.run_check import check_run
from rl_operator.documents.parse import parse_run, parse_runtime

NAMESPACE = "agree"
SAMPLE = 200
AT_THE_DOOR = {"LockedField", "WiredField", "NamespaceNotAllowed"}
"""Wherever the operator refuses by these, the door does. Of OutOfBounds it does not know what the catalog says."""

LOCKED = {
    "env": {"group_size": 8, "use_wandb": False, "eval_limit_ratio": 0.5, "tokenizer_name": None, "é\n": [1, {"a": 1}]},
    "trainer": {"lora_rank": 32, "loss": "ppo"},
}
BOUNDS = {
    "env": {"total_steps": {"min": 2, "max": 100.5}, "batch_size": {"min": 8}},
    "trainer": {"learning_rate": {"max": 1e-3}, "seed": {"min": 0, "max": 2**53 - 1}},
}
SPECS: dict[str, dict[str, Any]] = {
    "open": {"sandbox": {"maxSize": 8, "maxTimeoutSeconds": 900}},
    "locks": {"locked": LOCKED, "bounds": BOUNDS},
    "limits": {"limits": {"activeDeadlineSeconds": 600, "environmentReplicas": 2}},
    "priced": {"backend": {"prices": {"prefill": 0.1, "sample": 0.4, "train": 0.4}}},
    "elsewhere": {"namespaceSelector": {"matchLabels": {"team": "rockets"}}},
}

VALUES = JSON | st.sampled_from(
    [True, 1, 8, 8.0, "8", 0.5, 1e2, 100, 100.5, 101, None, [1.0, {"a": 1}], "ppo", 2**53, 32]
)
CONFIG_NAMES = st.sampled_from([*LOCKED["env"], *BOUNDS["env"], "api_key", "max_token_length"]) | KEYS
TINKER_NAMES = st.sampled_from([*LOCKED["trainer"], *BOUNDS["trainer"], "base_url", "kl_warning"]) | KEYS
RUNS = st.fixed_dictionaries(
    {"environment": st.just("sort_digits"), "runtime": st.sampled_from(sorted(SPECS))},
    optional={
        "config": st.dictionaries(CONFIG_NAMES, VALUES, max_size=4),
        "trainer": st.dictionaries(TINKER_NAMES, VALUES, max_size=3),
        "environmentReplicas": st.integers(1, 4),
        "sandbox": st.fixed_dictionaries(
            {}, optional={"size": st.sampled_from([2, 8, 9]), "timeoutSeconds": st.sampled_from([600, 900, 901])}
        ),
        "budget": st.none() | st.sampled_from([{"amount": 0.01, "currency": "USD"}, {"amount": 20, "currency": "EUR"}]),
        "activeDeadlineSeconds": st.none() | st.sampled_from([1, 600, 601]),
    },
)


def runtime_document(name: str) -> dict[str, Any]:
    spec = {"image": "i", **SPECS[name]}
    return {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLRuntime", "metadata": {"name": name}, "spec": spec}


def run_document(spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "drawn", "namespace": NAMESPACE}
    return {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def admin_of_specs(guarded_plane: ControlPlane) -> AdminClient:
    admin = guarded_plane.admin
    admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for name in SPECS:
        admin.post(RUNTIMES, runtime_document(name))
    probe = run_document({"environment": "sort_digits", "runtime": "elsewhere"})
    wait_for("the last runtime is known to the policy", lambda: door(admin, NAMESPACE, probe))
    return admin


def refusals_of(spec: dict[str, Any]) -> tuple[Refusal, ...]:
    """The operator's refusals."""
    run, runtime = parse_run(run_document(spec)), parse_runtime(runtime_document(spec["runtime"]))
    labels = {"kubernetes.io/metadata.name": NAMESPACE}
    environment = choose_environment("sort_digits", runtime, CATALOG, None)
    return check_run(run, RunInputs(runtime, environment, labels))


def test_admission_refuses_nothing_the_operator_accepts(admin_of_specs: AdminClient) -> None:
    verdicts = {True: 0, False: 0}
    for spec in draw(RUNS, SAMPLE):
        said, refusals = door(admin_of_specs, NAMESPACE, run_document(spec)), refusals_of(spec)
        verdicts[said is None] += 1
        passed = [refusal.sentence for refusal in refusals if refusal.code in AT_THE_DOOR]
        assert said or not passed, f"{spec}: the door lets pass: {passed}"
        # A value of the wrong type is outside every range, too, for the operator.
        fields = tuple(refusal.field for refusal in refusals)
        assert said is None or said.startswith(fields), f"{spec}: the operator refuses {fields} only: {said}"
    assert min(verdicts.values()) > SAMPLE // 10, verdicts
