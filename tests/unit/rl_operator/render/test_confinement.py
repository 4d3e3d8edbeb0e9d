"""Every pod that is rendered: without a token, without rights, with a limit on everything that it could fill."""

from typing import Any

import pytest
from tests.unit.rl_operator.render.pods import containers_of
from tests.unit.rl_operator.samples import (
    TINY,
    inputs_of,
    make_run,
    make_runtime,
    openenv_environment,
    own_environment,
    own_inputs,
)

from rl_operator.api.runtime import InferenceProvider
from rl_operator.render.discovery import discovery_pod, environment_reading, runtime_reading
from rl_operator.render.environment_pod import environment_template
from rl_operator.render.pod import pod_template
from rl_operator.render.rollout_reader import rollout_reader_job
from rl_operator.render.sandbox_pod import sandbox_template
from rl_operator.render.trial import Trial, trial_job

RUN, OWN_RUN, KEPT = make_run(sandbox={}), make_run(environment="own/digits"), make_run(runtime="lab")
CLAIM = make_runtime(rollouts={"persistentVolumeClaim": {"claimName": "rollouts"}})
PROVIDER, TRIAL = InferenceProvider(url="https://models.example/v1"), Trial(("a", "b"), steps=3, group_size=16)
OPENENV = own_inputs(OWN_RUN, TINY, openenv_environment())
IMAGE = own_environment(source=None, image={"reference": "x", "entry": "maze"})

PODS: dict[str, tuple[Any, int | None]] = {
    "of a run": (pod_template(RUN, inputs_of(RUN)), 65532),
    "of a bundled environment": (environment_template(RUN, inputs_of(RUN), None), 65533),
    "of an own environment": (environment_template(OWN_RUN, own_inputs(OWN_RUN), None), 65533),
    "of an environment and its OpenEnv server": (environment_template(OWN_RUN, OPENENV, None), 65533),
    "of a sandbox": (sandbox_template(RUN, inputs_of(RUN)), 65531),  # its user is chosen for each
    "of a trial": (trial_job(RUN, inputs_of(RUN), PROVIDER, TRIAL, name="t")["spec"]["template"], 65533),
    "of a reader": (
        rollout_reader_job(KEPT, pod_template(KEPT, inputs_of(KEPT, CLAIM)), "abc", "t0ken")["spec"]["template"],
        65532,
    ),
    "that reads a runtime's image": (discovery_pod(runtime_reading(TINY, "ops"), 1), 65532),
    "that reads a user's image": (discovery_pod(environment_reading(IMAGE), 1), 65532),
}


@pytest.mark.parametrize(("pod", "group"), PODS.values(), ids=PODS)
def test_a_pod_is_confined(pod: dict[str, Any], group: int) -> None:
    """What the pod security standard `restricted` asks for, and a read-only root on top."""
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (
        "Never", False, False,
    )  # fmt: skip
    security = spec["securityContext"]
    assert (security["runAsNonRoot"], security["runAsGroup"]) == (True, group)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers_of(pod).values():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert {"memory", "ephemeral-storage"} <= container["resources"]["limits"].keys()
        assert "livenessProbe" not in container, "what is busy answers no probe"
    folders = {each["name"]: each["emptyDir"] for each in spec["volumes"] if "emptyDir" in each}
    assert {name for name, folder in folders.items() if "sizeLimit" not in folder} <= {"tools"}
