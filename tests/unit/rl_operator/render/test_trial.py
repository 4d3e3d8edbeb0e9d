"""The Job that tries an environment: which image, config and files it has, and which keys it lacks."""

import json
from typing import Any

import pytest
import yaml
from tests.unit.rl_operator.render.pods import containers_of, env_vars_of
from tests.unit.rl_operator.samples import (
    KINDS,
    SOURCE_FILES,
    inputs_of,
    inputs_of_kind,
    make_run,
    make_runtime,
    own_inputs,
)

from rl_operator.api.names import RUN_LABEL
from rl_operator.api.runtime import InferenceProvider, Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.network import trial_policy
from rl_operator.render.trial import Trial, is_tried_apart, trial_config_map, trial_job, trial_name

PROVIDER = InferenceProvider.model_validate(
    {"url": "https://models.example/v1", "keySecret": {"name": "provider", "key": "api-key"}}
)
TRIAL = Trial(("qwen/qwen3-8b", "own/tuned"), steps=3, group_size=16)
KEYS = {
    "backend": {"url": "https://tinker.example", "keySecret": {"name": "tinker", "key": "k"}},
    "wandb": {"keySecret": {"name": "wandb", "key": "k"}},
    "secretEnvironment": [{"name": "judge", "key": "JUDGE_KEY"}],
}


def rendered(run: TrainingRun, runtime: Runtime | None = None, trial: Trial = TRIAL) -> dict[str, Any]:
    return trial_job(run, inputs_of(run, runtime or make_runtime()), PROVIDER, trial, name="sorting-0a1b2-t3c4")


def containers(job: dict[str, Any]) -> list[dict[str, Any]]:
    return list(containers_of(job["spec"]["template"]).values())


def test_a_container_per_model_with_the_runs_config() -> None:
    first, second = containers(rendered(make_run(runtime="lab", config={"group_size": 4})))
    assert first["command"] == [
        "tinker-atropos",
        "environment",
        "sort_digits",
        "process",
        "--config=/etc/rl/config.yaml",
        "--model=qwen/qwen3-8b",
        "--steps=3",
        "--group-size=16",
        "--limit=600",
    ]
    assert "--model=own/tuned" in second["command"]
    assert first["image"] == "tinker-atropos:dev"
    assert [first["name"], second["name"]] == ["model-0", "model-1"]


def test_the_edited_config_is_the_one_tried() -> None:
    run = make_run(runtime="lab", config={"max_token_length": 77})
    held = trial_config_map(run, inputs_of(run, make_runtime()), TRIAL, name="n", files={})
    assert yaml.safe_load(held["data"]["config.yaml"])["env"]["max_token_length"] == 77


def test_only_the_providers_key() -> None:
    run = make_run(runtime="lab")
    job = rendered(run, make_runtime(**KEYS))
    for container in containers(job):
        env_vars = env_vars_of(container)
        assert set(env_vars) == {"HOME", "RL_INFERENCE_URL", "RL_INFERENCE_API_KEY"}
        assert env_vars["RL_INFERENCE_API_KEY"] == {"secretKeyRef": {"name": "provider", "key": "api-key"}}
    text = json.dumps(job)
    assert "trainer" not in text.replace("tinker-atropos", "")
    assert "judge" not in text


def test_it_ends_by_itself() -> None:
    job = rendered(make_run(runtime="lab"))
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 86_400)
    assert spec["activeDeadlineSeconds"] == pod["activeDeadlineSeconds"] == 1200


def test_it_is_deleted_with_its_run_and_is_not_one_of_its_pods() -> None:
    job = rendered(make_run(runtime="lab"))
    [owner] = job["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "name": "sorting",
        "uid": "0a1b2c3d-1111-4222-8333-444455556666",
    }
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["rl-operator.dev/trial"] == "sorting"
    assert RUN_LABEL not in labels


def test_the_pod_is_labeled_and_scheduled_as_its_runtime_says() -> None:
    runtime = make_runtime(podLabels={"team": "rl"}, podAnnotations={"mesh": "off"}, nodeSelector={"pool": "cpu"})
    template = rendered(make_run(runtime="lab"), runtime)["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "rl"
    assert template["metadata"]["annotations"] == {"mesh": "off"}
    assert template["spec"]["nodeSelector"] == {"pool": "cpu"}


def test_the_files_of_an_own_environment_are_at_the_runs_paths() -> None:
    run = make_run(environment="own/digits")
    inputs = own_inputs(run)
    job = trial_job(run, inputs, PROVIDER, TRIAL, name="n", files=sorted(SOURCE_FILES))
    held = trial_config_map(run, inputs, TRIAL, name="n", files=SOURCE_FILES)
    assert containers(job)[-1]["command"][2] == "/etc/rl/source/digits.py"
    items = {item["key"]: item["path"] for item in job["spec"]["template"]["spec"]["volumes"][0]["configMap"]["items"]}
    assert items == {"config.yaml": "config.yaml", "digits.py": "source/digits.py", "tools.py": "source/tools.py"}
    assert set(held["data"]) == set(items)


def test_prompts_come_as_a_file_with_their_settings() -> None:
    run, trial = make_run(runtime="lab"), Trial(("m",), 3, 1, ("sort $(HOME) 1", "é"), 99, 0.5)
    command = containers(rendered(run, trial=trial))[0]["command"]
    assert {"--prompts=/etc/rl/prompts.json", "--max-tokens=99", "--temperature=0.5"} <= set(command)
    held = trial_config_map(run, inputs_of(run, make_runtime()), trial, name="n", files={})
    assert json.loads(held["data"]["prompts.json"]) == ["sort $(HOME) 1", "é"]


@pytest.mark.parametrize("name", ["a", "a" * 52])
def test_names_fit_into_a_label(name: str) -> None:
    run = make_run()
    named = run.with_changes(metadata=run.metadata.with_changes(name=name))
    assert len(trial_name(named, "abc")) <= 63


def test_a_model_name_is_never_shell_or_variable_syntax() -> None:
    command = containers(rendered(make_run(runtime="lab"), trial=Trial(("$(KEY)",), 1, 1)))[0]["command"]
    assert "--model=$$(KEY)" in command


@pytest.mark.parametrize(("kind", "own_code"), [(kind, own_code) for kind, (_, _, own_code) in KINDS.items()])
def test_a_strangers_code_is_apart_from_the_key(kind: str, own_code: bool) -> None:
    """Another container has it, with the platform's image even where the author's code is an image of his own."""
    run, inputs = inputs_of_kind(kind, make_runtime(**KEYS))
    spec = trial_job(run, inputs, PROVIDER, TRIAL, name="n")["spec"]["template"]["spec"]
    assert is_tried_apart(inputs, here=False) is own_code
    assert ("initContainers" in spec) is own_code
    for gate in spec.get("initContainers", ()):
        assert (gate["image"], gate["restartPolicy"]) == ("tinker-atropos:dev", "Always")
        assert gate["command"][:2] == ["tinker-atropos", "provider"]
        assert env_vars_of(gate)["RL_INFERENCE_API_KEY"] == {"secretKeyRef": {"name": "provider", "key": "api-key"}}
    for container in spec["containers"] if own_code else ():
        assert env_vars_of(container) == {"HOME": "/tmp", "RL_INFERENCE_URL": "http://127.0.0.1:8001"}
        assert "secretKeyRef" not in json.dumps(container)


def test_on_this_machine_code_and_key_are_the_callers() -> None:
    run = make_run(environment="own/digits", runtime="lab")
    job = trial_job(run, own_inputs(run, make_runtime()), PROVIDER, TRIAL, name="n", here=True)
    assert "initContainers" not in job["spec"]["template"]["spec"]
    assert env_vars_of(containers(job)[0])["RL_INFERENCE_URL"] == PROVIDER.url


def test_its_pod_reaches_the_provider_and_what_the_runtime_allows() -> None:
    run = make_run(environment="own/digits", runtime="lab")
    runtime = make_runtime(environmentEgress=[{"cidr": "203.0.113.0/24", "ports": [443]}])
    inputs = own_inputs(run, runtime)
    policy = trial_policy(run, inputs, "n", "http://models.platform.svc:8000/v1")
    labels = trial_job(run, inputs, PROVIDER, TRIAL, name="n")["spec"]["template"]["metadata"]["labels"]
    spec = policy["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    assert (spec["policyTypes"], spec["ingress"]) == (["Ingress", "Egress"], [])
    _dns, provider, allowed = spec["egress"]
    platform = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "platform"}}}
    assert provider == {"to": [platform], "ports": [{"protocol": "TCP", "port": 8000}]}
    assert allowed["to"] == [{"ipBlock": {"cidr": "203.0.113.0/24"}}]
