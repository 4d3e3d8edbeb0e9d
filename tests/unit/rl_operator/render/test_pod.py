from typing import Any

import pytest
from tests.unit.rl_operator.render.pods import containers_of, env_vars_of
from tests.unit.rl_operator.samples import DEFAULT, TINY, inputs_of, make_run, make_runtime, own_inputs, tasksets

from rl_contract.status_metrics import EvaluatedFigure
from rl_contract.trainer_messages import BestCheckpoint
from rl_operator.api.names import QUEUE_NAME_LABEL
from rl_operator.api.runtime import Runtime
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.container_env_vars import checkpoint_env_vars
from rl_operator.render.container_template import mounting
from rl_operator.render.pod import pod_of_attempt, pod_template


def template_of(run: TrainingRun, runtime: Runtime) -> dict[str, Any]:
    return mounting(pod_template(run, inputs_of(run, runtime)), "sorting-0a1b2c3d", "env: {}")


POD = pod_of_attempt(template_of(make_run(), TINY), 1, exposed=False)
CONTAINERS = containers_of(POD)


def test_an_attempt_is_the_template_with_its_number() -> None:
    template = template_of(make_run(), TINY)
    first, second = (pod_of_attempt(template, attempt, exposed=False) for attempt in (1, 2))
    assert "name" not in template["metadata"], "making a pod must not change the template"
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("sorting-0a1b2-1", "sorting-0a1b2-2")
    assert second["metadata"]["labels"]["rl-operator.dev/attempt"] == "2"
    for container in containers_of(second).values():
        assert {"name": "RL_ATTEMPT", "value": "2"} in container["env"]


def test_the_trainer_of_an_attempt_that_continues_knows_its_checkpoint() -> None:
    checkpoint = {"step": 60, "statePath": "tinker://m/weights/60"}
    run, template = make_run(), template_of(make_run(), TINY)
    assert checkpoint_env_vars(run.with_changes(spec=run.spec.with_changes(on_lost_checkpoint="Restart"))) == []
    run = run.with_changes(status=RunStatus.model_validate({"checkpoint": checkpoint}))
    restarting = run.with_changes(spec=run.spec.with_changes(on_lost_checkpoint="Restart"))
    for each, more in ((run, {}), (restarting, {"RL_RESTART_IF_CHECKPOINT_LOST": "1"})):
        pod = pod_of_attempt(template, 2, exposed=False, continued=checkpoint_env_vars(each))
        trainer, environment = pod["spec"]["containers"]
        told = {"RL_CHECKPOINT_STEP": "60", "RL_CHECKPOINT_PATH": "tinker://m/weights/60", **more}
        assert env_vars_of(trainer) == env_vars_of(CONTAINERS["trainer"]) | {"RL_ATTEMPT": "2"} | told
        assert env_vars_of(environment) == env_vars_of(CONTAINERS["environment"]) | {"RL_ATTEMPT": "2"}


def test_the_trainer_of_a_next_attempt_knows_the_best_weights() -> None:
    best = BestCheckpoint(
        step=50,
        held_out=EvaluatedFigure(value=0.9123, low=0.89),
        state_path="tinker://m/weights/50",
        sampler_path="tinker://m/sampler_weights/50",
    )
    run = make_run().with_changes(status=RunStatus.model_validate({"best": best.to_wire()}))
    (told,) = checkpoint_env_vars(run)
    assert told["name"] == "RL_BEST_CHECKPOINT"
    assert BestCheckpoint.model_validate_json(told["value"]) == best


def test_the_longest_names_fit_into_a_label() -> None:
    run = make_run()
    run = run.with_changes(metadata=run.metadata.with_changes(name="a" * 52))
    assert len(pod_of_attempt(template_of(run, TINY), 9999, exposed=False)["metadata"]["name"]) <= 63


def test_only_the_trainer_refers_to_secrets() -> None:
    holders = {name for name, container in CONTAINERS.items() if "secretKeyRef" in str(container["env"])}
    assert holders == {"trainer"}


def test_the_others_start_once_the_api_answers() -> None:
    assert CONTAINERS["api"]["restartPolicy"] == "Always"
    assert CONTAINERS["api"]["startupProbe"]["httpGet"] == {"path": "/healthz", "port": 8003}
    assert "startupProbe" not in CONTAINERS["trainer"], "it would kill a trainer whose backend is slow"


@pytest.mark.parametrize(("limits", "seconds"), [({}, None), ({"activeDeadlineSeconds": 2000}, 2360)])
def test_the_kubelets_deadline_is_only_a_fallback(limits: Any, seconds: int | None) -> None:
    template = template_of(make_run(activeDeadlineSeconds=1000), make_runtime(limits=limits))
    assert template["spec"].get("activeDeadlineSeconds") == seconds


def test_the_environment_may_have_an_image_of_its_own() -> None:
    runtime = make_runtime(image="ours:1", environmentImage="verifiers:1", imagePullPolicy="Always")
    run = make_run(environment="verifiers/sorting@1.2.0")
    spec = pod_template(run, inputs_of(run, runtime, tasksets()))["spec"]
    containers = containers_of({"spec": spec})
    images = {name: (each["image"], each["imagePullPolicy"]) for name, each in containers.items()}
    assert images == {
        "api": ("ours:1", "Always"),
        "trainer": ("ours:1", "Always"),
        "environment": ("verifiers:1", "Always"),
    }
    assert containers["environment"]["command"][:3] == ["tinker-atropos", "environment", "verifiers/sorting@1.2.0"]


def test_an_own_environment_has_no_container_next_to_the_keys() -> None:
    run = make_run(environment="own/digits")
    spec = mounting(pod_template(run, own_inputs(run)), "x", "env: {}")["spec"]
    assert [container["name"] for container in spec["containers"]] == ["trainer"]
    assert {volume["name"] for volume in spec["volumes"]} == {"config", "journal", "api-tmp", "trainer-tmp"}


def test_nor_has_a_harness_whose_command_is_the_authors() -> None:
    run = make_run(environment="harness/sort_digits")
    assert [each["name"] for each in template_of(run, TINY)["spec"]["containers"]] == ["trainer"]


def test_the_default_runtime_leaves_time_to_save() -> None:
    assert template_of(make_run(), DEFAULT)["spec"]["terminationGracePeriodSeconds"] == 300


def test_kueues_label_is_copied_from_the_run_to_its_pod_unless_the_runtime_has_its_own() -> None:
    run = make_run()
    labeled = run.with_changes(metadata=run.metadata.with_changes(labels={QUEUE_NAME_LABEL: "team", "mine": "x"}))
    labels = template_of(labeled, TINY)["metadata"]["labels"]
    assert (labels[QUEUE_NAME_LABEL], "mine" in labels) == ("team", False)
    assert QUEUE_NAME_LABEL not in template_of(run, TINY)["metadata"]["labels"]
    decided = make_runtime(podLabels={QUEUE_NAME_LABEL: "rl"})
    assert template_of(labeled, decided)["metadata"]["labels"][QUEUE_NAME_LABEL] == "rl"


def test_what_a_container_may_write_to_the_nodes_disk_is_limited() -> None:
    runtime = make_runtime(
        resources={
            "trainer": {"limits": {"memory": "1Gi"}},
            "environment": {"requests": {"ephemeral-storage": "1Gi"}, "limits": {"ephemeral-storage": "20Gi"}},
        }
    )
    pod = pod_of_attempt(template_of(make_run(), runtime), 1, exposed=False)
    stored = {
        name: [each["resources"][part].get("ephemeral-storage") for part in ("requests", "limits")]
        for name, each in containers_of(pod).items()
    }
    assert stored == {"api": ["256Mi", "4Gi"], "trainer": ["256Mi", "4Gi"], "environment": ["1Gi", "20Gi"]}
    folders = {v["name"]: v["emptyDir"]["sizeLimit"] for v in pod["spec"]["volumes"] if "emptyDir" in v}
    assert folders == {"journal": "4Gi", "api-tmp": "4Gi", "trainer-tmp": "4Gi", "environment-tmp": "20Gi"}
