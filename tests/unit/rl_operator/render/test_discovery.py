"""The pod that reads an image: restricted, named by what it reads."""

from typing import Any

import pytest
from tests.unit.rl_operator import samples

from rl_operator.api.names import REDISCOVER_ANNOTATION
from rl_operator.api.runtime import Runtime
from rl_operator.documents.parse import parse_environment
from rl_operator.render.discovery import COMMAND, discovery_pod, discovery_policy, environment_reading, runtime_reading

SPEC: dict[str, Any] = {
    "image": "registry.test/envs:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "pull"}],
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
}


def with_annotation(runtime: Runtime, value: str) -> Runtime:
    return runtime.with_changes(
        metadata=runtime.metadata.with_changes(annotations={REDISCOVER_ANNOTATION: value}, uid="u")
    )


def test_it_is_scheduled_like_the_runtimes_pods() -> None:
    pod = discovery_pod(runtime_reading(samples.make_runtime(**SPEC), "ops"), 1)
    for name in ("imagePullSecrets", "nodeSelector", "tolerations"):
        assert pod["spec"][name] == SPEC[name]
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "Always"


def test_runtimes_of_one_image_share_a_reading_until_one_requests_another() -> None:
    one = runtime_reading(samples.make_runtime(**SPEC), "ops")
    same = runtime_reading(samples.make_runtime(**SPEC, locked={"env": {"group_size": 4}}), "ops")
    again = runtime_reading(with_annotation(samples.make_runtime(**SPEC), "2"), "ops")
    newer = runtime_reading(samples.make_runtime(**SPEC | {"image": "registry.test/envs:2"}), "ops")
    assert one.key == same.key
    assert len({one.key, again.key, newer.key}) == 3
    assert discovery_pod(one, 1)["metadata"]["name"] == f"rl-discovery-{one.key}-1"


ENTRIES = {
    "a name": ("maze", list(COMMAND)),
    "a taskset": ("verifiers/sorting@1.2.0", list(COMMAND)),
    "a path": ("/app/envs/maze.py", [*COMMAND, "--path", "/app/envs", "--entry", "maze.py"]),
}


@pytest.mark.parametrize(("entry", "command"), ENTRIES.values(), ids=ENTRIES)
def test_an_environments_image_is_read_in_its_namespace(entry: str, command: list[str]) -> None:
    environment = parse_environment(
        {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLEnvironment",
            "metadata": {"name": "maze", "namespace": "team-a", "uid": "u1"},
            "spec": {"image": {"reference": "i", "entry": entry, "pullSecrets": [{"name": "pull"}]}},
        }
    )
    pod = discovery_pod(environment_reading(environment), 1)
    assert pod["metadata"]["namespace"] == "team-a"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert pod["spec"]["containers"][0]["command"] == command
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]


def test_user_images_get_no_network() -> None:
    reading = environment_reading(samples.own_environment(source=None, image={"reference": "x", "entry": "maze"}))
    policy, pod = discovery_policy(reading), discovery_pod(reading, 1)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & policy["spec"].keys()
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
    assert policy["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"]
    assert (reading.trusted, runtime_reading(samples.make_runtime(**SPEC), "ops").trusted) == (False, True)


def test_its_command_is_literal() -> None:
    entry = "/opt/$(HOME)/env.py"
    reading = environment_reading(samples.own_environment(source=None, image={"reference": "x", "entry": entry}))
    assert "/opt/$$(HOME)" in discovery_pod(reading, 1)["spec"]["containers"][0]["command"]
