"""Environment pods: no keys, no way out, a bound on everything."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import TINY, inputs_of, make_run, make_runtime, own_environment, own_inputs

from rl_operator.api.environment import Environment
from rl_operator.api.runtime import Runtime
from rl_operator.render.container_env_vars import environments_path
from rl_operator.render.container_template import mounting
from rl_operator.render.environment_pod import environment_pod, environment_template

RUN = make_run(environment="own/digits")
SOURCE = {"metadata": {"name": "sorting-source-0a1b2c3d"}}
JUDGE, OTHER = {"name": "judge", "key": "JUDGE_KEY"}, {"name": "judge", "key": "OTHER_KEY"}


def own_pod(runtime: Runtime = TINY, own: Environment | None = None) -> dict[str, Any]:
    inputs = own_inputs(RUN, runtime, own)
    source = SOURCE if inputs.environment.own and inputs.environment.own.spec.source else None
    return environment_pod(mounting(environment_template(RUN, inputs, source), "sorting-0a1b2c3d"), 1, 0, 0)


def bundled_pod(runtime: Runtime = TINY) -> dict[str, Any]:
    run = make_run(environmentReplicas=2)
    return environment_pod(environment_template(run, inputs_of(run, runtime), None), 2, 1, 3)


def container_of(pod: dict[str, Any]) -> dict[str, Any]:
    [container] = pod["spec"]["containers"]
    return container


def env_vars_of(pod: dict[str, Any]) -> dict[str, Any]:
    env_vars = container_of(pod)["env"]
    assert len({each["name"] for each in env_vars}) == len(env_vars)
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in env_vars}


@pytest.mark.parametrize("pod", [own_pod(), bundled_pod()], ids=["own", "bundled"])
def test_restricted_and_another_user_than_the_trainer(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert {name: spec["securityContext"][name] for name in ("runAsUser", "runAsGroup", "runAsNonRoot")} == {
        "runAsUser": 65533, "runAsGroup": 65533, "runAsNonRoot": True,
    }  # fmt: skip
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container_of(pod)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert "finalizers" not in pod["metadata"]


def test_names_and_labels_give_attempt_slot_and_incarnation() -> None:
    metadata = bundled_pod()["metadata"]
    assert metadata["name"] == "sorting-0a1b2-2-env-1-3"
    labels = {name.rpartition("/")[2]: value for name, value in metadata["labels"].items()}
    assert {name: labels[name] for name in ("component", "run", "attempt", "slot", "incarnation")} == {
        "component": "environment", "run": "sorting", "attempt": "2", "slot": "1", "incarnation": "3",
    }  # fmt: skip


def test_it_calls_the_runs_pod_by_name_and_knows_its_index() -> None:
    given_vars = env_vars_of(bundled_pod())
    path = environments_path(RUN.metadata.uid)
    assert given_vars["RL_API_URL"] == f"http://sorting-0a1b2.team-a.svc:8000{path}"
    assert given_vars["RL_INFERENCE_URL"] == f"http://sorting-0a1b2.team-a.svc:8001{path}"
    assert (given_vars["RL_ENVIRONMENT_INDEX"], given_vars["RL_ATTEMPT"]) == ("1", "2")


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
    assert {name for name, value in env_vars_of(pod).items() if isinstance(value, dict)} == keys
    assert not env_vars_of(pod).keys() & {"TINKER_API_KEY", "TINKER_BASE_URL", "WANDB_API_KEY"}


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


def test_source_code_runs_in_the_runtimes_image() -> None:
    pod = own_pod(make_runtime(imagePullPolicy="Never", imagePullSecrets=[{"name": "registry"}]))
    container = container_of(pod)
    assert (container["image"], container["imagePullPolicy"]) == ("tinker-atropos:dev", "Never")
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert container["command"][:4] == ["tinker-atropos", "environment", "/etc/rl/source/digits.py", "serve"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["source"] == {"name": "source", "mountPath": "/etc/rl/source", "readOnly": True}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["source"]["configMap"] == {"name": "sorting-source-0a1b2c3d"}
    assert volumes["config"]["configMap"]["items"] == [{"key": "config.yaml", "path": "config.yaml"}]


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


def test_it_is_scheduled_like_the_runs_pod() -> None:
    runtime = make_runtime(
        nodeSelector={"pool": "rl"},
        tolerations=[{"key": "rl"}],
        priorityClassName="low",
        runtimeClassName="gvisor",
        podLabels={"kueue.x-k8s.io/queue-name": "rl", "app.kubernetes.io/component": "training"},
        limits={"activeDeadlineSeconds": 600},
    )
    pod = own_pod(runtime)
    spec = pod["spec"]
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "rl"}, [{"key": "rl"}])
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("low", "gvisor")
    assert spec["activeDeadlineSeconds"] == 960
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "environment", "our own labels win"


@given(st.text(min_size=1, max_size=30))
def test_an_entry_is_one_literal_argument_of_the_command(entry: str) -> None:
    """The kubelet expands `$(NAME)` in commands, and takes `$$` for `$`; no shell sees them."""
    own = own_environment(source=None, image={"reference": "i", "entry": entry})
    word = container_of(own_pod(own=own))["command"][2]
    assert word.replace("$$", "") == entry.replace("$", "")
    assert word.count("$") == 2 * entry.count("$")
