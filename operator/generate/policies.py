"""ValidatingAdmissionPolicies: the API server rejects on admission what the operator would refuse, in the same words.

The policy for runs needs no parameters. The policy for runtimes is evaluated once per RLRuntime and applies to the one
that the run names.
"""

from typing import Any, Final

from generate import cel
from generate import policy_rules as rules
from rl_operator.api.names import API_VERSION, GROUP, RUN_PLURAL, RUNTIME_KIND, VERSION
from rl_operator.documents.yaml_text import write_yaml

POLICY_FILE: Final = "validating-admission-policies.yaml"
RUN_POLICY: Final = f"runs.{GROUP}"
RUNTIME_POLICY: Final = f"runtimes.{GROUP}"

MAX_MESSAGE: Final = 1_200
"""Characters. The API server drops messages of more than 5 KiB, and a character has up to 4 bytes."""

_CUT: Final = f"m.substring(0, {MAX_MESSAGE - 1}) + '…'"

_API: Final = "admissionregistration.k8s.io/v1"

Document = dict[str, Any]


def policy_documents() -> list[Document]:
    """The two policies, each with its binding."""
    every_runtime = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return [
        _run_policy(),
        _binding(RUN_POLICY),
        _runtime_policy(),
        _binding(RUNTIME_POLICY, paramRef=every_runtime),
    ]


def policies_text() -> str:
    """All of them as one YAML file."""
    return "---\n".join(map(write_yaml, policy_documents()))


def _run_policy() -> Document:
    """What holds for every runtime. It fails closed: nothing else prevents changes to the free-form maps."""
    conditions = {
        "not-deleted": rules.NOT_DELETED,
        "settings-changed": f"{rules.created_or_changed(*rules.SETTINGS)} || {rules.texts_changed()}",
    }
    fallback = "the run sets what the platform decides, or a setting that is frozen"
    return _policy(RUN_POLICY, conditions, rules.variables_of_any_runtime(), fallback, failurePolicy="Fail")


def _runtime_policy() -> Document:
    """What the run's runtime allows.

    It fails open: while the RLRuntime CRD is missing, the API server rejects every write that a failing policy with
    parameters matches, even a stop or the removal of a finalizer. The operator checks the same before anything starts.
    """
    conditions = {
        "not-deleted": rules.NOT_DELETED,
        "its-runtime": "params.metadata.name == object.spec.runtime",
        "relevant-change": rules.created_or_changed(
            *rules.SETTINGS, "runtime", "sandbox", "budget", "priority", *rules.LIMITS
        ),
    }
    fallback = "the run's runtime does not allow what the run asks"
    parameters = {"paramKind": {"apiVersion": API_VERSION, "kind": RUNTIME_KIND}}
    variables = rules.variables_of_its_runtime()
    return _policy(RUNTIME_POLICY, conditions, variables, fallback, failurePolicy="Ignore", **parameters)


def _policy(name: str, conditions: dict[str, str], variables: dict[str, str], fallback: str, **spec: Any) -> Document:
    """Names every fault in one message: of several failed validations the API server would report only the first."""
    cut = cel.let("m", "variables.sentences.join('; ')", f"m.size() > {MAX_MESSAGE} ? {_CUT} : m")
    sentences = {
        "parts": f"variables.faults.map(f, {cel.parts_of('f')})",
        "sentences": f"variables.parts.map(s, {cel.sentence('s')})",
    }
    validation = {
        "expression": "variables.faults.size() == 0",
        # The API server evaluates it even if nothing is wrong, and 1.33 plans again each variable that it refers to.
        "messageExpression": f"variables.faults.size() == 0 ? '' : {cut}",
        "message": fallback,
        "reason": "Invalid",
    }
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["CREATE", "UPDATE"],
        "resources": [RUN_PLURAL],
    }
    return _document(
        "ValidatingAdmissionPolicy",
        name,
        **spec,
        matchConstraints={"resourceRules": [rule]},
        matchConditions=_named(conditions),
        variables=_named(variables | sentences),
        validations=[validation],
    )


def _binding(policy: str, **spec: Any) -> Document:
    return _document("ValidatingAdmissionPolicyBinding", policy, policyName=policy, validationActions=["Deny"], **spec)


def _document(kind: str, name: str, **spec: Any) -> Document:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _named(expressions: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]
