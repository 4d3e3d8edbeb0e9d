"""Environment pods: no keys, no way out, a bound on everything."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.render.pods import env_vars_of
from tests.unit.rl_operator.samples import TINY, inputs_of, make_run, make_runtime, own_environment, own_inputs

from rl_operator.api.environment import Environment
from rl_operator.api.runtime import Runtime
from rl_operator.render.container_template import mounting
from rl_operator.render.environment_pod import environment_pod, environment_template

RUN = make_run(environment="own/digits")
SOURCE = {"metadata": {"name": "sorting-source-0a1b2c3d"}, "data": {"digits.py": "x = 1"}}
JUDGE, OTHER = {"name": "judge", "key": "JUDGE_KEY"}, {"name": "judge", "key": "OTHER_KEY"}


def own_pod(runtime: Runtime = TINY, own: Environment | None = None) -> dict[str, Any]:
    inputs = own_inputs(RUN, runtime, own)
    source = SOURCE if inputs.environment.own and inputs.environment.own.spec.source else None
    return environment_pod(mounting(environment_template(RUN, inputs, source), "sorting-0a1b2c3d", "env: {}"), 1, 0, 0)


def bundled_pod(runtime: Runtime = TINY) -> dict[str, Any]:
    run = make_run(environmentReplicas=2)
    return environment_pod(environment_template(run, inputs_of(run, runtime), None), 2, 1, 3)


def container_of(pod: dict[str, Any]) -> dict[str, Any]:
    [container] = pod["spec"]["containers"]
    return container


KEYS = {
    "bundled: all that are listed": (
        bundled_pod(make_runtime(secretEnvironment=[JUDGE, OTHER])),
        {"JUDGE_KEY", "OTHER_KEY"},
    ),
    "own: none that it does not ask for": (own_pod(make_runtime(secretEnvironment=[JUDGE, OTHER])), set()),
    "own: what it asks for": (
        own_pod(make_runtime(secretEnvironment=[JUDGE, OTHER]), own_environment(secretEnvironment=[JUDGE])),
        {"JUDGE_KEY"},
    ),
    "own: nothing that is not listed": (
        own_pod(make_runtime(secretEnvironment=[OTHER]), own_environment(secretEnvironment=[JUDGE])),
        set(),
    ),
    "own: not the same key of another Secret": (
        own_pod(
            make_runtime(secretEnvironment=[JUDGE]),
            own_environment(secretEnvironment=[{"name": "tinker", "key": "JUDGE_KEY"}]),
        ),
        set(),
    ),
}


@pytest.mark.parametrize(("pod", "keys"), KEYS.values(), ids=KEYS)
def test_keys(pod: dict[str, Any], keys: set[str]) -> None:
    assert {name for name, value in env_vars_of(container_of(pod)).items() if isinstance(value, dict)} == keys
    assert not env_vars_of(container_of(pod)).keys() & {"TINKER_API_KEY", "TINKER_BASE_URL", "WANDB_API_KEY"}


RESOURCES: dict[str, tuple[Runtime, Environment | None, dict[str, Any]]] = {
    "nobody says anything": (
        make_runtime(),
        None,
        {
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"memory": "4Gi", "ephemeral-storage": "2Gi"},
        },
    ),
    "the runtime's": (
        make_runtime(resources={"environment": {"limits": {"memory": "9Gi", "ephemeral-storage": "1Gi"}}}),
        None,
        {"requests": {"cpu": "500m"}, "limits": {"memory": "9Gi", "ephemeral-storage": "1Gi"}},
    ),
    "its own before the runtime's": (
        make_runtime(resources={"environment": {"limits": {"memory": "9Gi"}}}),
        own_environment(resources={"limits": {"cpu": 2, "memory": "1Gi"}}),
        {"requests": {}, "limits": {"cpu": 2, "memory": "1Gi", "ephemeral-storage": "2Gi"}},
    ),
    "a request beyond the default limit is the limit": (
        make_runtime(),
        own_environment(resources={"requests": {"memory": "16Gi"}}),
        {
            "requests": {"memory": "16Gi", "cpu": "500m"},
            "limits": {"memory": "16Gi", "ephemeral-storage": "2Gi"},
        },
    ),
}


@pytest.mark.parametrize(("runtime", "own", "resources"), RESOURCES.values(), ids=RESOURCES)
def test_resources_are_always_limited(runtime: Runtime, own: Environment | None, resources: dict[str, Any]) -> None:
    pod = own_pod(runtime, own)
    assert container_of(pod)["resources"] == resources
    [scratch] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "environment-tmp"]
    assert scratch["emptyDir"] == {"sizeLimit": resources["limits"]["ephemeral-storage"]}


def test_source_code_runs_in_the_runtimes_image_of_environments() -> None:
    pod = own_pod(make_runtime(environmentImage="registry.test/verifiers:1", imagePullPolicy="Never"))
    (container,) = pod["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.test/verifiers:1", "Never")


def test_an_own_image_gets_nothing_from_the_runtimes() -> None:
    image = {"reference": "registry.test/maze:1", "entry": "maze", "pullSecrets": [{"name": "mine"}]}
    pod = own_pod(
        make_runtime(imagePullPolicy="Never", imagePullSecrets=[{"name": "registry"}], environmentImage="other:1"),
        own_environment(source=None, image=image),
    )
    container = container_of(pod)
    assert container["image"] == "registry.test/maze:1"
    assert "imagePullPolicy" not in container
    assert pod["spec"]["imagePullSecrets"] == [{"name": "mine"}]
    assert container["command"][2] == "maze"
    assert {mount["name"] for mount in container["volumeMounts"]} == {"environment-tmp", "config"}


@given(st.text(min_size=1, max_size=30))
def test_an_entry_is_one_literal_argument_of_the_command(entry: str) -> None:
    """The kubelet expands `$(NAME)` in commands, and takes `$$` for `$`; no shell sees them."""
    own = own_environment(source=None, image={"reference": "i", "entry": entry})
    word = container_of(own_pod(own=own))["command"][2]
    assert word.replace("$$", "") == entry.replace("$", "")
    assert word.count("$") == 2 * entry.count("$")
