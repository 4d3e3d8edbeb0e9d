"""The Job that serves what a run kept: from the frozen pod, restricted, and gone by itself."""

import json
from typing import Any

import pytest
from tests.unit.rl_operator.render.test_rollout_sink import AUTHORITIES, BUCKET, CLAIM, PLAIN
from tests.unit.rl_operator.samples import UID, inputs_of, make_run, make_runtime

from rl_operator.api.names import RUN_LABEL
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.manifests import render_run
from rl_operator.render.rollout_reader import IDLE_SECONDS, keeps_rollouts, rollout_reader_job

RUN = make_run(runtime="lab")


def frozen(runtime: Runtime, run: TrainingRun = RUN) -> dict[str, Any]:
    return render_run(run, inputs_of(run, runtime)).templates.pod


def pod_of(runtime: Runtime) -> dict[str, Any]:
    template: dict[str, Any] = rollout_reader_job(RUN, frozen(runtime), "abc", "t0ken")["spec"]["template"]
    return template


def container_of(runtime: Runtime) -> dict[str, Any]:
    [container] = pod_of(runtime)["spec"]["containers"]
    found: dict[str, Any] = container
    return found


@pytest.mark.parametrize(("runtime", "kept"), [(PLAIN, False), (CLAIM, True), (BUCKET, True)])
def test_what_outlives_a_pod(runtime: Runtime, kept: bool) -> None:
    assert keeps_rollouts(frozen(runtime)) is kept


def test_it_reads_the_runs_folder_of_the_claim() -> None:
    spec, container = pod_of(CLAIM)["spec"], container_of(CLAIM)
    folder = {"name": "rollouts", "mountPath": "/var/lib/rl-rollouts", "subPath": f"sorting-{UID}", "readOnly": True}
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}, folder]
    assert {"name": "rollouts", "persistentVolumeClaim": {"claimName": "rollouts"}} in spec["volumes"]
    assert {each["name"] for each in container["env"]} == {"HOME", "RL_ROLLOUTS_DIR", "RL_OPS_TOKEN"}
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_it_has_the_buckets_keys_and_no_others() -> None:
    runtime = BUCKET.with_changes(
        spec=make_runtime(
            rollouts=BUCKET.spec.to_wire()["rollouts"],
            backend={"keySecret": {"name": "tinker", "key": "k"}},
            wandb={"keySecret": {"name": "wandb", "key": "k"}},
        ).spec
    )
    names = {each["name"] for each in container_of(runtime)["env"]}
    store = {"RL_ROLLOUTS_URL", "RL_ROLLOUTS_SECRET", "AWS_ENDPOINT_URL", "AWS_REGION"}
    assert names == {"HOME", "RL_OPS_TOKEN", *store, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert {each["name"] for each in pod_of(runtime)["spec"]["volumes"]} == {"tmp"}


def test_it_trusts_the_buckets_authority() -> None:
    runtime = AUTHORITIES["Secret"]
    [volume] = [each for each in pod_of(runtime)["spec"]["volumes"] if each["name"] == "rollouts-ca"]
    assert volume["secret"]["items"] == [{"key": "root.pem", "path": "ca.crt"}]
    [mount] = [each for each in container_of(runtime)["volumeMounts"] if each["name"] == "rollouts-ca"]
    [file] = [each["value"] for each in container_of(runtime)["env"] if each["name"] == "RL_ROLLOUTS_CA_FILE"]
    assert file == f"{mount['mountPath']}/ca.crt"


def test_it_ends_by_itself() -> None:
    job, spec, container = (
        rollout_reader_job(RUN, frozen(CLAIM), "abc", "t0ken"),
        pod_of(CLAIM)["spec"],
        container_of(CLAIM),
    )
    assert (job["spec"]["backoffLimit"], job["spec"]["ttlSecondsAfterFinished"]) == (0, 60)
    assert job["spec"]["activeDeadlineSeconds"] == spec["activeDeadlineSeconds"] == 14_400
    assert container["command"] == ["tinker-atropos", "rollouts", f"--idle-exit={IDLE_SECONDS}"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": 8002}


def test_it_is_deleted_with_its_run_and_is_not_one_of_its_pods() -> None:
    job = rollout_reader_job(RUN, frozen(CLAIM), "abc", "t0ken")
    [owner] = job["metadata"]["ownerReferences"]
    assert (owner["name"], owner["uid"], "controller" in owner) == ("sorting", UID, False)
    for labels in (job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]):
        assert labels["rl-operator.dev/rollouts-of"] == UID
        assert RUN_LABEL not in labels
        assert "app.kubernetes.io/managed-by" not in labels


def test_it_runs_where_and_as_the_run_did() -> None:
    runtime = make_runtime(
        rollouts={"persistentVolumeClaim": {"claimName": "rollouts"}},
        image="registry.test/ours:1",
        imagePullPolicy="Always",
        imagePullSecrets=[{"name": "registry"}],
        nodeSelector={"pool": "rl"},
        tolerations=[{"key": "rl", "operator": "Exists"}],
        runtimeClassName="gvisor",
        priorityClassName="high",
        podLabels={"team": "rl", "kueue.x-k8s.io/queue-name": "q"},
        podAnnotations={"mesh": "off"},
        limits={"activeDeadlineSeconds": 100},
    )
    template, container = pod_of(runtime), container_of(runtime)
    spec, labels = template["spec"], template["metadata"]["labels"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.test/ours:1", "Always")
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert (spec["nodeSelector"], spec["runtimeClassName"]) == ({"pool": "rl"}, "gvisor")
    assert spec["tolerations"] == [{"key": "rl", "operator": "Exists"}]
    assert "priorityClassName" not in spec, "it must not push training aside"
    assert spec["activeDeadlineSeconds"] == 14_400, "the run's limit is not a reader's"
    assert labels["team"] == "rl"
    assert "kueue.x-k8s.io/queue-name" not in labels, "nobody waits in a queue to read"
    assert template["metadata"]["annotations"] == {"mesh": "off"}


def test_it_holds_nothing_of_the_environment() -> None:
    runtime = make_runtime(
        rollouts={"persistentVolumeClaim": {"claimName": "rollouts"}}, secretEnvironment=[{"name": "judge", "key": "J"}]
    )
    assert "judge" not in json.dumps(rollout_reader_job(RUN, frozen(runtime), "abc", "t0ken"))


def test_the_longest_name_fits_into_a_label() -> None:
    named = RUN.with_changes(metadata=RUN.metadata.with_changes(name="a" * 52))
    assert len(rollout_reader_job(named, frozen(CLAIM, named), "abc", "t0ken")["metadata"]["name"]) <= 63
