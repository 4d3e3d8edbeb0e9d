"""Rendering as a whole: golden files for what a reviewer sees, and what the hash covers."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import (
    DEFAULT,
    SOURCE_FILES,
    TINY,
    UID,
    catalog_of,
    inputs_of,
    make_run,
    make_runtime,
    openenv_environment,
    own_environment,
    own_inputs,
)

from rl_contract.content_hash import sha256_of_texts
from rl_contract.shared_env import SharedEnvSection
from rl_contract.trainer_settings import TrainerSettings
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.shipped import bundled_runtimes
from rl_operator.documents.yaml_text import write_yaml
from rl_operator.render.environment_pod import environment_pod, source_of
from rl_operator.render.manifests import Rendered, config_map_name, pod_name, render_config, render_run, templates_of
from rl_operator.render.pod import pod_of_attempt
from rl_operator.render.sandbox_pod import sandbox_pod

GOLDEN = Path("tests/data/golden/render")
PLACEMENT: dict[str, Any] = {
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"pool": "rl"},
    "tolerations": [{"key": "rl", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "low",
    "runtimeClassName": "gvisor",
    "podLabels": {
        "kueue.x-k8s.io/queue-name": "rl",
        "app.kubernetes.io/instance": "other",  # our own labels win
        "app.kubernetes.io/component": "other",
    },
    "podAnnotations": {"mesh": "off"},
    "limits": {"activeDeadlineSeconds": 7200},
}
FULL_RUNTIME = make_runtime(
    backend={"url": "https://tinker.example", "keySecret": {"name": "tinker", "key": "TINKER_API_KEY"}},
    wandb={"project": "rl", "entity": "org", "keySecret": {"name": "wandb", "key": "WANDB_API_KEY"}},
    locked={"env": {"tokenizer_name": "org/model"}, "openai": {"model_name": "org/model", "server_type": "sglang"}},
    defaults={"env": {"total_steps": 100}, "trainer": {"lora_rank": 8}},
    resources={"trainer": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}}},
    secretEnvironment=[{"name": "judge", "key": "OPENROUTER_API_KEY"}],
    **PLACEMENT,
)
FULL_RUN = make_run(
    config={"group_size": 4, "batch_size": 64, "wandb_name": "4e-5"},
    trainer={"learning_rate": 4e-5, "loss": "ppo"},
    wandb={"project": "mine", "entity": "me", "group": "g", "tags": ["a", "b"], "notes": "costs $(HOME) $5"},
    startFrom={"checkpoint": "tinker://run/weights/final"},
)
CASES: dict[str, tuple[TrainingRun, Runtime]] = {
    "tiny": (make_run(config={"total_steps": 40}, trainer={"learning_rate": 1e-3}), TINY),
    "default": (make_run(runtime="default"), DEFAULT),
    "full": (FULL_RUN, FULL_RUNTIME),
}


RUN, RUNTIME = CASES["tiny"]
APART_RUNTIME = make_runtime(
    secretEnvironment=[{"name": "judge", "key": "OPENROUTER_API_KEY"}, {"name": "judge", "key": "OTHER_KEY"}],
    environmentEgress=[{"cidr": "0.0.0.0/0", "ports": [443]}, {"cidr": "2001:db8::/32"}],
    **PLACEMENT,
)
OWN_RUN = make_run(environment="own/digits", config={"total_steps": 40}, environmentReplicas=2)
OWN = own_environment(
    resources={"requests": {"cpu": 2}}, secretEnvironment=[{"name": "judge", "key": "OPENROUTER_API_KEY"}]
)


def render_own(files: dict[str, str] | None = None) -> Rendered:
    return render_run(OWN_RUN, own_inputs(OWN_RUN, APART_RUNTIME, OWN), files or SOURCE_FILES)


def render_openenv(**openenv: Any) -> Rendered:
    run = make_run(environment="own/digits", config={"total_steps": 40})
    return render_run(run, own_inputs(run, TINY, openenv_environment(**openenv)))


def render(run: TrainingRun, runtime: Runtime) -> Rendered:
    return render_run(run, inputs_of(run, runtime))


def pages(rendered: Rendered, *, exposed: bool = False) -> dict[str, str]:
    """The ConfigMap's data are pages of their own: quoted inside it they could not be reviewed."""
    config_map = {key: value for key, value in rendered.config_map.items() if key != "data"}
    return {
        "config.yaml": rendered.config_map["data"]["config.yaml"],
        "config-map.yaml": write_yaml(config_map),
        "pod.yaml": write_yaml(pod_of_attempt(rendered.templates.pod, 1, exposed=exposed)),
        "environment-pod.yaml": write_yaml(environment_pod(rendered.templates.environment, 1, 1, 0)),
        "network.yaml": "---\n".join(write_yaml(child) for child in rendered.templates.network),
        "source.yaml": write_yaml(rendered.source or {}),
        "sandbox-pod.yaml": write_yaml(sandbox_pod(rendered.templates.sandbox, 2, 1, 3))
        if rendered.templates.sandbox
        else "",
        "sandbox-network.yaml": "---\n".join(write_yaml(child) for child in rendered.templates.sandbox_network),
    }


APART_PAGES = ["pod.yaml", "environment-pod.yaml", "network.yaml"]


@pytest.mark.parametrize(
    ("name", "page"),
    [
        *((name, page) for name in CASES for page in ("config.yaml", "config-map.yaml", "pod.yaml")),
        *(("replicas", page) for page in APART_PAGES),
        *(("own", page) for page in (*APART_PAGES, "source.yaml")),
        *(("openenv", page) for page in ("environment-pod.yaml", "network.yaml")),
        *(("openenv-url", page) for page in ("environment-pod.yaml", "network.yaml")),
        *(("sandbox", page) for page in ("sandbox-pod.yaml", "sandbox-network.yaml")),
    ],
)
def test_golden(name: str, page: str) -> None:
    """RL_UPDATE_GOLDEN=1 writes the files again; the diff is then for a person to judge."""
    rendered = {
        **{case: lambda case=case: pages(render(*CASES[case])) for case in CASES},
        "replicas": lambda: pages(render(make_run(environmentReplicas=2), APART_RUNTIME), exposed=True),
        "own": lambda: pages(render_own(), exposed=True),
        "openenv": lambda: pages(render_openenv(command=["serve", "--port", "$PORT"]), exposed=True),
        "sandbox": lambda: pages(render(make_run(sandbox={}), TINY)),
        "openenv-url": lambda: pages(render_openenv(url="http://echo.games.svc:8000"), exposed=True),
    }
    text, path = rendered[name]()[page], GOLDEN / f"{name}.{page}"
    if os.environ.get("RL_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def frozen_as(run: TrainingRun, rendered: Rendered) -> TrainingRun:
    """The run as its status says what it was started with."""
    return run.with_changes(status=run.status.with_changes(config_hash=rendered.config_hash))


@pytest.mark.parametrize(
    "run", [RUN, make_run(sandbox={}), make_run(environmentReplicas=2)], ids=["one pod", "sandboxes", "replicas"]
)
def test_the_config_map_holds_the_templates(run: TrainingRun) -> None:
    rendered = render(run, RUNTIME)
    assert templates_of(rendered.config_map, frozen_as(run, rendered)) == rendered.templates


def test_names_follow_from_run_and_hash() -> None:
    run, runtime = CASES["tiny"]
    rendered = render(run, runtime)
    name = rendered.config_map["metadata"]["name"]
    assert name == config_map_name(run, rendered.config_hash) == f"sorting-{rendered.config_hash[:8]}"
    assert (
        pod_name(run, 3)
        == pod_of_attempt(rendered.templates.pod, 3, exposed=False)["metadata"]["name"]
        == f"sorting-{UID[:5]}-3"
    )
    for template in (rendered.templates.pod, rendered.templates.environment):
        [volume] = [volume for volume in template["spec"]["volumes"] if volume["name"] == "config"]
        assert volume["configMap"]["name"] == name


@pytest.mark.parametrize(
    ("run", "runtime"),
    [
        (make_run(config={"total_steps": 41}, trainer={"learning_rate": 1e-3}), TINY),
        (make_run(config={"total_steps": 40}, trainer={"learning_rate": 2e-3}), TINY),
        (RUN.with_changes(metadata=RUN.metadata.with_changes(uid="another")), TINY),
        (RUN, TINY.with_changes(spec=TINY.spec.with_changes(image="tinker-atropos:other"))),
    ],
    ids=["config", "trainer", "uid", "image"],
)
def test_every_input_that_matters_changes_the_hash(run: TrainingRun, runtime: Runtime) -> None:
    assert render(run, runtime).config_hash != render(RUN, RUNTIME).config_hash


def test_the_frozen_files_are_part_of_the_hash() -> None:
    changed = render_own({**SOURCE_FILES, "digits.py": "class Digits(BaseEnv): answer = 1\n"})
    assert changed.config_hash != render_own().config_hash
    assert changed.source is not None
    assert changed.config_maps == (changed.source, changed.config_map), "the run's own is the sign that both are there"
    assert changed.source["immutable"] is True
    assert changed.source["data"]["digits.py"].endswith("answer = 1\n")
    assert source_of(changed.templates.environment) == (
        changed.source["metadata"]["name"],
        sha256_of_texts(changed.source["data"]),
    )


def test_the_largest_source_fits_next_to_the_run() -> None:
    """Etcd takes 1.5 MiB, a ConfigMap 1 MiB: the files have one of their own."""
    rendered = render_own({"digits.py": "x" * 900_000})
    assert all(len(json.dumps(each)) < 2**20 for each in rendered.config_maps)
    assert len(json.dumps(rendered.config_map)) < 32_768


def test_what_may_change_later_is_not_in_the_hash() -> None:
    again = RUN.with_changes(
        spec=RUN.spec.with_changes(suspend=True, ttl_seconds_after_finished=5, environment_replicas=7),
        status=RUN.status.with_changes(observed_generation=7),
    )
    assert render(again, RUNTIME) == render(RUN, RUNTIME)


VALUES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(max_size=5)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_the_order_of_fields_does_not_matter(config: dict[str, Any]) -> None:
    one, other = make_run(config=config), make_run(config=dict(reversed(config.items())))
    first, second = render(one, RUNTIME), render(other, RUNTIME)
    assert json.dumps(first.config_map) == json.dumps(second.config_map)
    assert first.config_hash == second.config_hash


def test_the_runs_wandb_settings_win_over_the_runtimes() -> None:
    runtime = make_runtime(wandb={"project": "platform"})
    run = make_run(wandb={"project": "mine", "group": "g", "name": "n"})
    tinker = render_config(run, inputs_of(run, runtime))["tinker"]
    assert tinker == {"wandb_project": "mine", "wandb_group": "g", "wandb_run_name": "n"}
    tinker = render_config(make_run(), inputs_of(make_run(), runtime))["tinker"]
    assert tinker == {"wandb_project": "platform", "wandb_run_name": "sorting"}


def test_shared_fields_are_present_even_if_unset() -> None:
    env = render_config(make_run(), inputs_of(make_run(), make_runtime()))["env"]
    shared = {"total_steps", "group_size", "batch_size", "max_token_length", "tokenizer_name"}
    assert env.keys() == shared | {"steps_per_eval"}  # which the trainer must agree on, too


@pytest.mark.parametrize(("own", "rendered"), [(40, 40), (0, 0), (-1, 0), (None, None), ("often", None), (True, None)])
def test_the_environments_own_interval_is_rendered_as_the_trainer_reads_it(own: object, rendered: int | None) -> None:
    """None: only running `config_init` would tell."""
    toy = catalog_of({"name": "steps_per_eval", "type": "int", "default": own})
    run = make_run(environment="toy")
    env = render_config(run, inputs_of(run, make_runtime(), toy))["env"]
    assert env.get("steps_per_eval") == rendered
    SharedEnvSection.model_validate(env)


def test_no_addresses() -> None:
    text = render_run(make_run(), inputs_of(make_run())).config_map["data"]["config.yaml"]
    assert "http" not in text
    assert "800" not in text


@pytest.mark.parametrize("name", ["default", "tiny"])
def test_the_trainer_reads_the_rendered_config(name: str) -> None:
    """It reads the file strictly, with these models."""
    run = make_run(runtime=name, wandb={"project": "4e-5", "name": "yes"})
    rendered = render_run(run, inputs_of(run, bundled_runtimes()[name]))
    config = yaml.safe_load(rendered.config_map["data"]["config.yaml"])
    env, tinker = SharedEnvSection.model_validate(config["env"]), TrainerSettings.model_validate(config["tinker"])
    assert env.total_steps == rendered.config["env"]["total_steps"]
    assert tinker.learning_rate == rendered.config["tinker"]["learning_rate"]
    assert (tinker.wandb_project, tinker.wandb_run_name) == ("4e-5", "yes")
