"""Random documents: runs, runtimes, environments and catalogs, sound ones and broken ones.

A sound document is built from every field of its kind; a broken one is a sound one with a few values changed at random.
So most examples pass many checks, and every field is broken sooner or later.
"""

import copy
import os
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import CATALOG, DEFAULT, TINY, UID

from rl_operator.api.catalog import EnvironmentField
from rl_operator.api.names import API_VERSION, ENVIRONMENT_KIND, RUN_KIND, RUNTIME_KIND
from rl_operator.api.settings.fields import SHARED_FIELDS, TRAINER_FIELDS, WIRED_FIELDS

SECRET = "tml-0123456789abcdefghij"
"""Looks like a key of Tinker. No answer may repeat it."""

EXAMPLES = int(os.environ.get("RL_EXAMPLES", "150"))
"""How many examples each property draws; .ci/run asks for more, and for other ones each time."""

Json = Any
Documents = st.SearchStrategy[dict[str, Json]]


def drawn(share: float = 1.0) -> settings:
    """Settings of a property that draws this share of the examples asked for."""
    return settings(
        max_examples=max(1, int(EXAMPLES * share)),
        deadline=None,  # the machine may be busy
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


def draw(documents: Documents, count: int) -> list[dict[str, Json]]:
    """A sample of that many, the same in every process and on every day."""
    sample: list[dict[str, Json]] = []

    @seed(5)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(documents)
    def collect(document: dict[str, Json]) -> None:
        sample.append(document)

    collect()
    return sample[:count]


# --- JSON ------------------------------------------------------------------------------------------------------------
NUMBERS = (
    st.sampled_from([0, 1, -1, 8, 16, 0.5, 4e-5, 1e300, -1e-300, 2**53 + 1, 2**63 - 1, -(2**63), 10**20])
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        "",
        " ",
        "8",
        "true",
        "null",
        "a\nb",
        "\x00",
        "\u2028",
        "é",
        "🦜",
        "$(HOME)",
        "{{x}}",
        "x" * 300,
        "own/",
        "own/../x",
    ]
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS | st.just(SECRET)
KEYS = st.text(max_size=8) | st.sampled_from(
    ["api_key", "group_sise", "min", "max", "name", "a.b", "taskset", "taskset.size", "a\nb", "<<", "x" * 200]
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def some_of(fields: Mapping[str, st.SearchStrategy[Json]], **always: st.SearchStrategy[Json]) -> Documents:
    """A mapping with some of the fields."""
    return st.fixed_dictionaries(always, optional=fields)


# --- sound documents -------------------------------------------------------------------------------------------------
BY_TYPE: dict[str, st.SearchStrategy[Json]] = {
    "int": st.integers(1, 4096),
    "float": st.floats(0.001, 10) | st.integers(1, 5),
    "str": st.sampled_from(["bundled", "gpt2", "a text", "Qwen/Qwen3-8B"]),
    "bool": st.booleans(),
    "str | None": st.none() | st.just("a text"),
}
SOUND_CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "total_steps": st.integers(1, 100),
        "group_size": st.sampled_from([2, 4, 8]),
        "batch_size": st.sampled_from([8, 16, 64]),
        "max_token_length": st.integers(1, 64),
        "steps_per_eval": st.integers(1, 50),
        "use_wandb": st.booleans(),
        "eval_limit_ratio": st.floats(0, 1),
        "wandb_name": st.none() | st.just("sort"),
        "inference_weight": st.sampled_from([1, 1.0, 0.5]),
    },
)
SOUND_TINKER = st.fixed_dictionaries(
    {},
    optional={
        "lora_rank": st.sampled_from([8, 32]),
        "learning_rate": st.sampled_from([4e-5, 1e-3, 1]),
        "loss": st.sampled_from(["importance_sampling", "ppo", "cispo"]),
        "max_staleness": st.integers(0, 20),
        "seed": st.integers(0, 2**31),
        "backend_deadline_seconds": st.floats(1, 600),
    },
)
NAMES = st.sampled_from(["sorting", "a", "run-2", "a" * 52])
SECONDS = st.integers(1, 10**7)
PRINTABLE = st.text(
    st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters=","), min_size=1, max_size=20
)


def _value_of(field: EnvironmentField) -> st.SearchStrategy[Json]:
    return BY_TYPE.get(field.type, st.just(field.default)) | st.just(field.default)


def values_of(fields: Mapping[str, EnvironmentField], section: str) -> Documents:
    """Values that fit the fields, of any size, for some of them."""
    names = [name for name in fields if (section, name) not in WIRED_FIELDS]
    return st.lists(st.sampled_from(names), max_size=4, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: _value_of(fields[name]) for name in chosen})
    )


SORT_DIGITS = next(each for each in CATALOG.environments if each.name == "sort_digits")
ENV_VALUES = SOUND_CONFIGS | SOUND_CONFIGS | values_of(SORT_DIGITS.fields_by_name, "env")
TINKER_VALUES = SOUND_TINKER | SOUND_TINKER | values_of(TRAINER_FIELDS, "trainer")

WANDB = some_of(
    {
        **dict.fromkeys(("project", "entity", "group", "name", "notes"), PRINTABLE),
        "tags": st.lists(PRINTABLE, max_size=3, unique=True),
    }
)
ALONG = {"withOptimizer": st.booleans(), "data": st.sampled_from(["restart", "continue"])}
START_FROM = st.fixed_dictionaries(
    {"checkpoint": st.just("tinker://m/weights/10")}, optional=ALONG
) | st.fixed_dictionaries({"run": NAMES}, optional=ALONG)


def _object(kind: str, metadata: Documents, spec: Documents, **more: st.SearchStrategy[Json]) -> Documents:
    kind_of_it = {"apiVersion": st.just(API_VERSION), "kind": st.just(kind)}
    return st.fixed_dictionaries({**kind_of_it, "metadata": metadata, "spec": spec, **more})


SOUND_RUNS = _object(
    RUN_KIND,
    st.fixed_dictionaries({"name": NAMES, "namespace": st.just("team-a"), "uid": st.just(UID)}),
    some_of(
        {
            "runtime": st.just("tiny"),
            "config": ENV_VALUES,
            "trainer": TINKER_VALUES,
            "wandb": WANDB,
            "startFrom": START_FROM,
            "backoffLimit": st.integers(0, 1000),
            "startDeadlineSeconds": st.none() | SECONDS,
            "progressDeadlineSeconds": st.none() | SECONDS,
            "activeDeadlineSeconds": st.none() | SECONDS,
            "ttlSecondsAfterFinished": st.none() | SECONDS,
            "environmentReplicas": st.integers(1, 3),
            "suspend": st.booleans(),
        },
        environment=st.sampled_from(["sort_digits", "sort_digits", "own/mine", "sort_digit", "./mine.py"]),
    ),
)
PLAIN_RUNS = _object(
    RUN_KIND,
    st.fixed_dictionaries({"name": NAMES, "namespace": st.just("team-a"), "uid": st.just(UID)}),
    some_of(
        {
            "config": SOUND_CONFIGS,
            "trainer": SOUND_TINKER,
            "wandb": WANDB,
            "backoffLimit": st.integers(0, 1000),
            "startDeadlineSeconds": st.none() | SECONDS,
            "suspend": st.booleans(),
        },
        environment=st.sampled_from(["sort_digits", "own/mine"]),
        runtime=st.just("tiny"),
    ),
)
"""Runs that the runtime `tiny` mostly accepts."""

BOUNDS = st.fixed_dictionaries({}, optional={"min": st.integers(-5, 50) | st.floats(0, 1), "max": st.integers(1, 5000)})
RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        "requests": st.just({"cpu": "100m", "memory": "128Mi"}),
        "limits": st.just({"memory": "1Gi", "ephemeral-storage": "1Gi", "cpu": 1}),
    },
)
SECRET_KEYS = st.fixed_dictionaries({"name": st.just("keys"), "key": st.sampled_from(["JUDGE_KEY", "OPENAI_KEY"])})
SOUND_RUNTIMES = _object(
    RUNTIME_KIND,
    st.just({"name": "lab"}),
    some_of(
        {
            "imagePullPolicy": st.sampled_from(["Always", "IfNotPresent", "Never"]),
            "imagePullSecrets": st.just([{"name": "registry"}]),
            "backend": st.fixed_dictionaries(
                {},
                optional={"url": st.just("http://tinker:8005"), "keySecret": st.just({"name": "tinker", "key": "K"})},
            ),
            "wandb": some_of(
                {"project": PRINTABLE, "entity": PRINTABLE, "keySecret": st.just({"name": "w", "key": "K"})}
            ),
            "locked": some_of({"env": ENV_VALUES, "trainer": TINKER_VALUES, "openai": st.just({"timeout": 60})}),
            "bounds": some_of(
                {
                    "env": st.dictionaries(st.sampled_from(["total_steps", "group_size", "gone"]), BOUNDS),
                    "trainer": st.dictionaries(st.sampled_from(["learning_rate", "lora_rank"]), BOUNDS),
                }
            ),
            "defaults": some_of({"env": ENV_VALUES, "trainer": TINKER_VALUES}),
            "limits": some_of(
                {
                    "maxActiveRuns": st.none() | st.integers(0, 9),
                    "activeDeadlineSeconds": SECONDS,
                    "environmentReplicas": st.integers(1, 4),
                }
            ),
            "namespaceSelector": st.sampled_from(
                [
                    {"matchLabels": {"team": "a"}},
                    {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
                    {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
                    {},
                ]
            ),
            "resources": some_of(dict.fromkeys(("api", "trainer", "environment"), RESOURCES)),
            "terminationGracePeriodSeconds": st.integers(1, 600),
            "nodeSelector": st.just({"gpu": "no"}),
            "tolerations": st.just([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]),
            "podLabels": st.just({"team": "rl"}),
            "podAnnotations": st.dictionaries(st.just("example.com/note"), PRINTABLE),
            "secretEnvironment": st.lists(SECRET_KEYS, max_size=2, unique_by=lambda secret: secret["key"]),
            "environmentEgress": st.just([{"cidr": "203.0.113.0/24", "ports": [443]}]),
        },
        image=st.just("tinker-atropos:dev"),
    ),
)
SHIPPED_RUNTIMES = st.sampled_from([TINY.to_wire(), DEFAULT.to_wire()])

SOUND_ENVIRONMENT_SPECS = st.fixed_dictionaries(
    {
        "source": st.fixed_dictionaries(
            {"configMap": st.fixed_dictionaries({"name": st.just("mine"), "entry": st.just("mine.py")})}
        )
    },
    optional={"resources": RESOURCES, "secretEnvironment": st.lists(SECRET_KEYS, max_size=1)},
)
_MORE_FIELDS = ("steps_per_eval", "use_wandb", "eval_limit_ratio", "wandb_name", "inference_weight")
FIELDS = [{**SORT_DIGITS.fields_by_name[name].to_wire(), "description": ""} for name in (*SHARED_FIELDS, *_MORE_FIELDS)]
"""Enough for an environment that can run, and short where an example that fails is printed."""


def _condition(type_: str, status: str, reason: str, message: str) -> dict[str, Json]:
    return {
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-05-01T12:00:00Z", "observedGeneration": 1,
    }  # fmt: skip


READY_STATUS = {
    "observedGeneration": 1,
    "conditions": [_condition("Ready", "True", "Found", "")],
    "sourceHash": "0a1b2c3d",
    "entry": "mine.py",
    "className": "Mine",
    "fields": FIELDS,
}
STALLED_STATUS = {
    "observedGeneration": 1,
    "conditions": [
        _condition("Ready", "False", "SyntaxError", "mine.py, line 3: invalid syntax."),
        _condition("Stalled", "True", "SyntaxError", "mine.py, line 3: invalid syntax."),
    ],
}
SOUND_ENVIRONMENTS = _object(
    ENVIRONMENT_KIND,
    st.just({"name": "mine", "namespace": "team-a", "uid": UID, "generation": 1}),
    SOUND_ENVIRONMENT_SPECS,
    status=st.sampled_from([READY_STATUS, READY_STATUS, STALLED_STATUS, {"observedGeneration": 0}]).map(copy.deepcopy),
)
IMAGES = st.fixed_dictionaries(
    {"reference": st.just("registry.example.com/my-env:1.2"), "entry": st.sampled_from(["mine", "/opt/env/mine.py"])},
    optional={
        "pullPolicy": st.sampled_from(["Always", "IfNotPresent", "Never"]),
        "pullSecrets": st.just([{"name": "registry"}]),
    },
)
READY_ENVIRONMENTS = _object(
    ENVIRONMENT_KIND,
    st.just({"name": "mine", "namespace": "team-a", "uid": UID, "generation": 1}),
    st.fixed_dictionaries({"source": st.just({"configMap": {"name": "mine"}})}, optional={"resources": RESOURCES})
    | st.fixed_dictionaries({"image": IMAGES}, optional={"resources": RESOURCES}),
    status=st.just(READY_STATUS),
)

ANNOTATIONS = (
    st.sampled_from(
        ["int", "float", "str", "bool", "Path", "", "Any", "Optional", "Union", "Annotated", "EvalHandlingEnum"]
    )
    | st.sampled_from(["int | None", "Optional[str]", "list[int]", "dict[str, float]", "Literal['a', 'b']", "'int'"])
    | st.sampled_from(["Union[int, List[str]]", "Annotated[int, Field(ge=1)]", "tuple[int, ...]", "Callable[[], int]"])
    | st.sampled_from(
        ["int |", "list[", "Literal[]", "dict[]", "lambda: 0", r"Literal['a\nb', True]", "[" * 300 + "]" * 300]
    )
    | st.text(max_size=10)
)
CATALOGS = st.builds(
    lambda fields: {"environments": [{"name": "sort_digits", "fields": [*FIELDS, *fields]}]},
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.sampled_from(["color", "group_size", "x", "taskset.size", "taskset.level"]) | KEYS,
                "type": ANNOTATIONS,
            },
            optional={
                "default": JSON,
                "minimum": st.none() | st.floats(-5, 5),
                "exclusive_maximum": st.none() | st.integers(-5, 500),
                "min_length": st.none() | st.integers(0, 5),
                "max_length": st.none() | st.integers(0, 5),
                "pattern": st.sampled_from(["^a+$", "(", "(a+)+$", "\\d{2}", "(?P<x"]),
                "choices": st.lists(SCALARS, max_size=3),
            },
        ),
        max_size=3,
    ),
)


# --- broken documents ------------------------------------------------------------------------------------------------
def places(value: Json, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every value below, and of the value itself."""
    match value:
        case dict():
            children = list(value.items())
        case list():
            children = list(enumerate(value))
        case _:
            children = []
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def with_value(document: Json, path: tuple[str | int, ...], value: Json) -> Json:
    """A copy with the value at the path."""
    if not path:
        return value
    copied = copy.copy(document)
    copied[path[0]] = with_value(document[path[0]], path[1:], value)
    return copied


@st.composite
def mutated(choose: st.DrawFn, documents: Documents, most: int = 2) -> dict[str, Json]:
    """A document with up to `most` of its values replaced, removed or given a child that does not belong there."""
    document = choose(documents)
    for _ in range(choose(st.integers(0, most))):
        if found := [place for place in places(document) if place]:  # everything may have been removed
            document = choose(_broken_at(document, choose(st.sampled_from(found))))
    return document


@st.composite
def _broken_at(choose: st.DrawFn, document: Json, path: tuple[str | int, ...]) -> Json:
    parent: Json = document
    for part in path[:-1]:
        parent = parent[part]
    kind = choose(st.sampled_from(["replace", "add", "remove"]))
    if kind == "remove" and isinstance(parent, dict):
        return with_value(document, path[:-1], {key: value for key, value in parent.items() if key != path[-1]})
    if kind == "add" and isinstance(parent, dict):
        return with_value(document, path[:-1], parent | {choose(KEYS): choose(JSON)})
    return with_value(document, path, choose(JSON))


# --- cases: all that a run is checked against ------------------------------------------------------------------------
PARENTS = st.none() | st.fixed_dictionaries(
    {"name": NAMES, "exists": st.booleans()},
    optional={
        "phase": st.sampled_from([None, "Running", "Succeeded", "Failed"]),
        "state": st.none() | st.just({"run": "parent", "uid": UID, "step": 10, "statePath": "tinker://m/weights/10"}),
        "expires_at": st.sampled_from([None, "2099-01-01T00:00:00Z"]),
        "expired": st.booleans(),
        "base_model": st.sampled_from([None, "bundled", "Qwen/Qwen3-8B"]),
        "adapter_shape": st.dictionaries(
            st.sampled_from(["lora_rank", "train_mlp"]), st.sampled_from([None, 16, 32, True, False])
        ),
    },
)
NAMESPACE_LABELS = st.sampled_from([{}, {"team": "a"}, {"kubernetes.io/metadata.name": "team-a"}])


def cases(
    runs: Documents,
    runtimes: st.SearchStrategy[Json],
    environments: Documents,
    catalogs: st.SearchStrategy[Json],
) -> Documents:
    """A runtime or a catalog is a document, or the name of a bundled one."""
    return st.fixed_dictionaries(
        {
            "run": runs,
            "runtime": runtimes,
            "own": st.none() | environments,
            "catalog": catalogs,
            "labels": NAMESPACE_LABELS,
            "parent": PARENTS,
        }
    )


ANY_CASES = cases(
    mutated(SOUND_RUNS),
    st.sampled_from(["tiny", "default"]) | mutated(SOUND_RUNTIMES, most=1) | mutated(SHIPPED_RUNTIMES),
    mutated(SOUND_ENVIRONMENTS, most=1),
    st.sampled_from(["bundled", None]) | CATALOGS,
)
GOOD_CASES = cases(PLAIN_RUNS, st.just("tiny"), READY_ENVIRONMENTS, st.just("bundled"))
ACCEPTABLE_CASES = cases(PLAIN_RUNS, st.just("tiny") | SOUND_RUNTIMES, READY_ENVIRONMENTS, st.just("bundled"))
