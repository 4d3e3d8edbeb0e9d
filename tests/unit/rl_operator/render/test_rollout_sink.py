"""Who gets the place where rollouts outlive their pod: the trainer, and nobody else."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.rl_operator.render.pods import containers_of, env_vars_of
from tests.unit.rl_operator.samples import UID, inputs_of, make_run, make_runtime, own_inputs

from rl_operator.api.runtime import Runtime
from rl_operator.render.container_template import mounting
from rl_operator.render.manifests import render_run
from rl_operator.render.pod import pod_of_attempt, pod_template
from rl_operator.render.rollout_sink import SINK_VARIABLES

CLAIM = make_runtime(rollouts={"persistentVolumeClaim": {"claimName": "rollouts"}})
STORE: dict[str, Any] = {
    "url": "s3://lab/rollouts/",
    "endpoint": "https://minio.storage.svc:9000/",
    "region": "eu-central-1",
    "secretName": "store",
}
BUCKET = make_runtime(rollouts={"objectStore": STORE})
PLAIN = make_runtime()


def pod_of(runtime: Runtime, **spec: Any) -> dict[str, Any]:
    run = make_run(runtime="lab", **spec)
    return pod_of_attempt(mounting(pod_template(run, inputs_of(run, runtime)), "x", "env: {}"), 1, exposed=False)


def added(runtime: Runtime) -> dict[str, Any]:
    """The trainer's variables that it has without a place, and with one."""
    before, after = (env_vars_of(containers_of(pod_of(of))["trainer"]) for of in (PLAIN, runtime))
    assert before.items() <= after.items()
    return {name: each for name, each in after.items() if name not in before}


def test_a_claim_is_mounted_in_the_trainer_alone() -> None:
    pod = pod_of(CLAIM)
    mounts = {
        name: [each for each in container["volumeMounts"] if each["name"] == "rollouts"]
        for name, container in containers_of(pod).items()
    }
    folder = {"name": "rollouts", "mountPath": "/var/lib/rl-rollouts", "subPath": f"sorting-{UID}"}
    assert mounts == {"api": [], "trainer": [folder], "environment": []}
    volumes = [each for each in pod["spec"]["volumes"] if each["name"] == "rollouts"]
    assert volumes == [{"name": "rollouts", "persistentVolumeClaim": {"claimName": "rollouts"}}]
    assert added(CLAIM) == {"RL_ROLLOUTS_DIR": "/var/lib/rl-rollouts"}


def test_the_kubelet_does_not_go_through_all_files_of_a_claim() -> None:
    before, after = (pod_of(each)["spec"]["securityContext"] for each in (PLAIN, CLAIM))
    assert after == before | {"fsGroupChangePolicy": "OnRootMismatch"}
    assert after["fsGroup"] == 65532


def test_a_bucket_is_the_trainers_in_variables() -> None:
    def key(name: str) -> dict[str, Any]:
        return {"secretKeyRef": {"name": "store", "key": name, "optional": True}}

    assert added(BUCKET) == {
        "RL_ROLLOUTS_URL": f"s3://lab/rollouts/team-a/sorting-{UID}",
        "RL_ROLLOUTS_SECRET": "store",
        "AWS_ENDPOINT_URL": "https://minio.storage.svc:9000",
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": key("AWS_ACCESS_KEY_ID"),
        "AWS_SECRET_ACCESS_KEY": key("AWS_SECRET_ACCESS_KEY"),
    }


AUTHORITIES = {
    "ConfigMap": make_runtime(
        rollouts={"objectStore": STORE | {"certificateAuthority": {"configMap": {"name": "lab-ca"}}}}
    ),
    "Secret": make_runtime(
        rollouts={"objectStore": STORE | {"certificateAuthority": {"secret": {"name": "lab-ca", "key": "root.pem"}}}}
    ),
}


@pytest.mark.parametrize(
    ("kind", "key", "source"),
    [
        ("ConfigMap", "ca.crt", lambda items: {"configMap": {"name": "lab-ca", "optional": True, "items": items}}),
        ("Secret", "root.pem", lambda items: {"secret": {"secretName": "lab-ca", "optional": True, "items": items}}),
    ],
)
def test_an_authority_is_mounted_in_the_trainer_alone(kind: str, key: str, source: Callable[..., Any]) -> None:
    """One key of it: a Secret of cert-manager's has the server's private key beside it."""
    pod = pod_of(AUTHORITIES[kind])
    mounts = {
        name: [each for each in container["volumeMounts"] if each["name"] == "rollouts-ca"]
        for name, container in containers_of(pod).items()
    }
    folder = {"name": "rollouts-ca", "mountPath": "/etc/rl-rollouts", "readOnly": True}
    assert mounts == {"api": [], "trainer": [folder], "environment": []}
    [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == "rollouts-ca"]
    assert volume == {"name": "rollouts-ca", **source([{"key": key, "path": "ca.crt"}])}
    assert added(AUTHORITIES[kind]) == added(BUCKET) | {
        "RL_ROLLOUTS_CA_FILE": "/etc/rl-rollouts/ca.crt",
        "RL_ROLLOUTS_CA_SOURCE": f"key {key} of {kind} lab-ca",
    }


def test_a_bucket_may_go_without_keys() -> None:
    runtime = make_runtime(rollouts={"objectStore": {"url": "s3://lab"}})
    assert added(runtime) == {"RL_ROLLOUTS_URL": f"s3://lab/team-a/sorting-{UID}"}


@pytest.mark.parametrize("runtime", [CLAIM, BUCKET, *AUTHORITIES.values()], ids=["claim", "bucket", *AUTHORITIES])
def test_nothing_else_changes(runtime: Runtime) -> None:
    """Not the other containers, and not one of the pods of environments, which run others' code."""
    before, after = containers_of(pod_of(PLAIN)), containers_of(pod_of(runtime))
    assert {name for name in before if before[name] != after[name]} == {"trainer"}
    run = make_run(runtime="lab", environment="own/digits")
    plain, kept = (
        render_run(run, own_inputs(run, of)).config_map["data"]["environments.json"] for of in (PLAIN, runtime)
    )
    assert plain == kept


def test_all_that_is_set_is_known_by_name() -> None:
    """A reader of the rollouts gets what the trainer had."""
    assert set(added(CLAIM)) | set(added(AUTHORITIES["Secret"])) == SINK_VARIABLES
