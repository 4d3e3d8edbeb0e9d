"""Sandbox pods and their walls: nothing to steal, no way out, a limit on everything."""

import json
from typing import Any

import pytest
from tests.unit.rl_operator.samples import TINY, inputs_of, make_run, make_runtime, own_inputs

from rl_operator.api.names import MAX_RUN_NAME_LENGTH
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.container_env_vars import share_env_vars
from rl_operator.render.environment_pod import environment_pod
from rl_operator.render.manifests import SANDBOXES_KEY, render_run
from rl_operator.render.network import network_children, sandbox_network_children, sandbox_network_names
from rl_operator.render.pod import pod_of_attempt
from rl_operator.render.sandbox_pod import sandbox_pod, sandbox_template

RUN = make_run(sandbox={})


def pod_of(run: TrainingRun = RUN, runtime: Runtime = TINY) -> dict[str, Any]:
    template = sandbox_template(run, inputs_of(run, runtime))
    assert template is not None
    return sandbox_pod(template, 2, 1, 3)


def test_each_has_a_user_of_its_own() -> None:
    template = sandbox_template(RUN, inputs_of(RUN))
    assert template is not None
    pods = [sandbox_pod(template, 1, slot, incarnation) for slot in range(4) for incarnation in range(4)]
    users = {pod["spec"]["securityContext"]["runAsUser"] for pod in pods}
    assert len(users) == len(pods)
    assert min(users) > 65535


def test_there_is_nothing_to_steal_in_it() -> None:
    runtime = make_runtime(secretEnvironment=[{"name": "judge", "key": "JUDGE_KEY"}], sandbox={})
    spec = pod_of(runtime=runtime)["spec"]
    assert not [container for container in (*spec["initContainers"], *spec["containers"]) if "env" in container]
    assert all("emptyDir" in volume for volume in spec["volumes"])
    assert spec["dnsPolicy"] == "None"


def test_the_server_is_told_its_limits() -> None:
    run = make_run(sandbox={"timeoutSeconds": 90, "resources": {"limits": {"memory": "512Mi"}}})
    [container] = pod_of(run)["spec"]["containers"]
    program, arguments = container["command"]
    assert program == "/rl-tools/bin/sandbox-server"
    told = json.loads(arguments)
    assert told["owner"] == run.metadata.uid
    assert (told["seconds"], told["memory_mb"], told["disk_mb"]) == (90, 464, 1024)
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "1Gi"}


@pytest.mark.parametrize(
    ("environment", "config", "asked", "most", "seconds"),
    [
        ("calculator_agent", {}, {}, 3600, 600),
        ("calculator_agent", {"rollout_seconds": 1800.5}, {}, 3600, 1801),
        ("calculator_agent", {"rollout_seconds": 60}, {"timeoutSeconds": 90}, 3600, 90),
        ("sort_digits", {}, {}, 3600, 600),
        ("sort_digits", {}, {}, 300, 300),
    ],
)
def test_one_lasts_as_long_as_a_rollout_unless_the_run_says_otherwise(
    environment: str, config: dict[str, Any], asked: dict[str, Any], most: int, seconds: int
) -> None:
    run = make_run(environment=environment, config=config, sandbox=asked)
    [container] = pod_of(run, make_runtime(sandbox={"maxTimeoutSeconds": most}))["spec"]["containers"]
    assert json.loads(container["command"][1])["seconds"] == seconds


@pytest.mark.parametrize(
    ("asked", "runtimes", "image"),
    [
        ({}, {}, TINY.spec.image),
        ({}, {"image": "agents:1"}, "agents:1"),
        ({"image": "swe:1"}, {"image": "agents:1", "images": ["swe:*"]}, "swe:1"),
    ],
)
def test_images(asked: dict[str, Any], runtimes: dict[str, Any], image: str) -> None:
    spec = pod_of(make_run(sandbox=asked), make_runtime(sandbox=runtimes))["spec"]
    assert spec["containers"][0]["image"] == image
    assert spec["initContainers"][0]["image"] == TINY.spec.image, "the tools come from the runtime's image"


def test_a_runtime_class_of_their_own() -> None:
    runtime = make_runtime(sandbox={"runtimeClassName": "gvisor"}, runtimeClassName="other")
    assert pod_of(runtime=runtime)["spec"]["runtimeClassName"] == "gvisor"
    other = make_runtime(sandbox={}, runtimeClassName="other")
    assert pod_of(runtime=other)["spec"]["runtimeClassName"] == "other"


@pytest.mark.parametrize(
    ("run", "components"),
    [(RUN, ["environment", "training"]), (make_run(environment="own/digits", sandbox={}), ["environment"])],
    ids=["inside", "apart"],
)
def test_only_pods_with_an_environment_get_in_and_nothing_gets_out(run: TrainingRun, components: list[str]) -> None:
    policy, service = sandbox_network_children(run)
    [rule] = policy["spec"]["ingress"]
    labels = [peer["podSelector"]["matchLabels"] for peer in rule["from"]]
    assert [each["app.kubernetes.io/component"] for each in labels] == components
    assert all(each["rl-operator.dev/run-uid"] == run.metadata.uid for each in labels)
    assert rule["ports"] == [{"protocol": "TCP", "port": 8090}]
    assert (policy["spec"]["egress"], policy["spec"]["policyTypes"]) == ([], ["Ingress", "Egress"])
    assert policy["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"]
    assert "clusterIP" not in service["spec"], "one address for all of them"


def test_environments_apart_may_connect_to_them() -> None:
    run = make_run(environment="own/digits", sandbox={})
    [policy] = [c for c in network_children(run, own_inputs(run)) if c["metadata"]["name"].endswith("-environment")]
    assert {"protocol": "TCP", "port": 8090} in [port for rule in policy["spec"]["egress"] for port in rule["ports"]]


def test_names_fit_and_are_known() -> None:
    longest = RUN.metadata.with_changes(name="r" * MAX_RUN_NAME_LENGTH)
    run = RUN.with_changes(metadata=longest)
    children = sandbox_network_children(run)
    assert {(child["kind"], child["metadata"]["name"]) for child in children} == sandbox_network_names(run)
    assert max(len(child["metadata"]["name"]) for child in children if child["kind"] == "Service") <= 63


@pytest.mark.parametrize(("replicas", "share"), [(1, "5"), (2, "3"), (8, "1")])
def test_an_environment_knows_where_they_are_and_its_share(replicas: int, share: str) -> None:
    run = make_run(sandbox={"size": 5}, environmentReplicas=replicas)
    rendered = render_run(run, inputs_of(run))
    inside = pod_of_attempt(rendered.templates.pod, 1, exposed=False, share=share_env_vars(run, 0))
    outside = environment_pod(rendered.templates.environment, 1, 0, 0, share=share_env_vars(run, 0))
    for pod in (inside, outside):
        [container] = [c for c in pod["spec"]["containers"] if c["name"] == "environment"]
        told = {each["name"]: each.get("value") for each in container["env"]}
        assert told["RL_SANDBOX_SHARE"] == share
        assert told["RL_SANDBOX_PORT"] == "8090"
        service = rendered.templates.sandbox_network[1]["metadata"]["name"]
        assert told["RL_SANDBOX_HOST"] == f"{service}.{run.metadata.namespace}.svc"


def test_shares_add_up_to_all_of_them() -> None:
    run = make_run(sandbox={"size": 5}, environmentReplicas=3)
    assert [int(share_env_vars(run, slot)[0]["value"]) for slot in range(3)] == [2, 2, 1]


def test_more_environments_later_change_nothing_that_is_frozen() -> None:
    few, many = (make_run(sandbox={"size": 5}, environmentReplicas=count) for count in (1, 4))
    assert render_run(few, inputs_of(few)).config_hash == render_run(many, inputs_of(many)).config_hash


def test_a_run_without_them_is_what_it_was() -> None:
    run = make_run()
    rendered = render_run(run, inputs_of(run))
    assert SANDBOXES_KEY not in rendered.config_map["data"]
    assert (rendered.templates.sandbox, rendered.templates.sandbox_network) == (None, ())
    assert "RL_SANDBOX" not in json.dumps(rendered.templates.pod)
