"""The server of an environment's pod: what it gets, what it does not, and what our environment is told about it."""

import json
from typing import Any

import pytest
from tests.unit.rl_operator.render.pods import env_vars_of
from tests.unit.rl_operator.samples import TINY, make_run, make_runtime, openenv_environment, own_inputs

from rl_operator.api.runtime import Runtime
from rl_operator.render.container_template import mounting
from rl_operator.render.environment_pod import environment_pod, environment_template
from rl_operator.render.manifests import render_run

RUN = make_run(environment="own/digits")


def pod_of(runtime: Runtime = TINY, **openenv: Any) -> dict[str, Any]:
    inputs = own_inputs(RUN, runtime, openenv_environment(**openenv))
    template = mounting(environment_template(RUN, inputs, None), "sorting-0a1b2c3d", "env: {}")
    return environment_pod(template, 1, 0, 0, "10.1.2.3")


def server_of(pod: dict[str, Any]) -> dict[str, Any]:
    [server] = pod["spec"]["initContainers"]
    return server


def told_of(pod: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Our environment's variables, and the settings among them."""
    [environment] = pod["spec"]["containers"]
    env_vars = env_vars_of(environment)
    return env_vars, json.loads(env_vars["RL_OPENENV"])


def test_the_server_gets_its_port_and_nothing_else_of_the_run() -> None:
    pod = pod_of(make_runtime(secretEnvironment=[{"name": "judge", "key": "JUDGE_KEY"}]), port=9000)
    server = server_of(pod)
    assert env_vars_of(server) == {"HOME": "/tmp", "TMPDIR": "/tmp", "PORT": "9000"}
    assert server["volumeMounts"] == [{"name": "openenv-tmp", "mountPath": "/tmp"}]
    assert "workingDir" not in server, "an image's own folder is where its program is"


@pytest.mark.parametrize(
    ("word", "rendered"),
    [
        ("$PORT", "$(PORT)"),
        ("--bind=0.0.0.0:$PORT", "--bind=0.0.0.0:$(PORT)"),
        ("$PORTAL", "$$PORTAL"),
        ("$HOME", "$$HOME"),
        ("$(PORT)", "$$(PORT)"),
        ("a$b", "a$$b"),
    ],
)
def test_only_the_port_is_expanded_in_a_command(word: str, rendered: str) -> None:
    assert server_of(pod_of(command=["serve", word], image="i"))["command"] == ["serve", rendered]


def test_the_images_own_command_is_kept() -> None:
    assert "command" not in server_of(pod_of())


RESOURCES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "nothing": (
        {},
        {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "64Mi"},
        {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "1Gi"},
    ),
    "a small limit is the request, too": (
        {"limits": {"memory": "64Mi"}},
        {"cpu": "250m", "ephemeral-storage": "64Mi"},
        {"cpu": "2", "memory": "64Mi", "ephemeral-storage": "1Gi"},
    ),
    "a large request is the limit, too": (
        {"requests": {"memory": "16Gi"}},
        {"cpu": "250m", "memory": "16Gi", "ephemeral-storage": "64Mi"},
        {"cpu": "2", "memory": "16Gi", "ephemeral-storage": "1Gi"},
    ),
}


@pytest.mark.parametrize(("given", "requests", "limits"), RESOURCES.values(), ids=RESOURCES)
def test_everything_is_limited(given: dict[str, Any], requests: dict[str, Any], limits: dict[str, Any]) -> None:
    pod = pod_of(resources=given)
    assert server_of(pod)["resources"] == {"requests": requests, "limits": limits}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["openenv-tmp"]["emptyDir"] == {"sizeLimit": limits["ephemeral-storage"]}


def test_its_pull_secrets_join_the_runtimes() -> None:
    runtime = make_runtime(imagePullPolicy="Always", imagePullSecrets=[{"name": "ours"}, {"name": "both"}])
    pod = pod_of(runtime, pullPolicy="Never", pullSecrets=[{"name": "both"}, {"name": "theirs"}])
    assert server_of(pod)["imagePullPolicy"] == "Never"
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "ours"}, {"name": "both"}, {"name": "theirs"}]


def test_without_dns_the_runs_pod_is_found_by_its_address() -> None:
    spec = pod_of()["spec"]
    assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("None", {"nameservers": ["127.0.0.1"]})
    assert spec["hostAliases"] == [{"ip": "10.1.2.3", "hostnames": ["sorting-0a1b2.team-a.svc"]}]
    let_out = pod_of(make_runtime(environmentEgress=[{"cidr": "203.0.113.0/24"}]))["spec"]
    assert not {"dnsPolicy", "dnsConfig", "hostAliases"} & let_out.keys()


def test_a_server_elsewhere_is_no_container() -> None:
    pod = pod_of(url="http://echo.games.svc:9000")
    assert not {"initContainers", "dnsPolicy"} & pod["spec"].keys()
    env_vars, settings = told_of(pod)
    assert settings["url"] == "http://echo.games.svc:9000"
    assert "RL_OPENENV_PORT" not in env_vars
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["config", "environment-tmp"]


def test_what_an_attempt_needs_is_frozen_with_the_run() -> None:
    before = render_run(RUN, own_inputs(RUN, own=openenv_environment()))
    after = render_run(RUN, own_inputs(RUN, own=openenv_environment(timeoutSeconds=61)))
    assert before.config_hash != after.config_hash
    assert before.source is None
