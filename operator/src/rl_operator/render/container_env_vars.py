"""The environment variables of the three containers: addresses, identity, and keys by reference."""

import hashlib
from collections.abc import Mapping
from typing import Final

from rl_contract import env_vars as variables
from rl_contract.processes import API_PORT, API_URL, INFERENCE_PORT, INFERENCE_URL, OPS_PORTS, SANDBOX_PORT
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api.run_inputs import ParentRun, RunInputs, base_model
from rl_operator.api.runtime import Runtime, SecretKey
from rl_operator.api.training_run import TrainingRun

RESULT_FILE: Final = "/dev/termination-log"
SCRATCH: Final = "/tmp"  # noqa: S108 -- an emptyDir of the container's own


def api_env_vars(run: TrainingRun) -> list[k8s.EnvVar]:
    return _shared(run, "api")


def trainer_env_vars(run: TrainingRun, inputs: RunInputs) -> list[k8s.EnvVar]:
    """The only container that gets the backend's and W&B's keys."""
    runtime = inputs.runtime
    backend, wandb = runtime.spec.backend, runtime.spec.wandb
    plain = {
        variables.RL_INFERENCE_URL: INFERENCE_URL,
        variables.RL_GRACE_SECONDS: str(runtime.spec.termination_grace_period_seconds),
        **_start_from(run, inputs.parent),
        variables.RL_PRICES: _prices(run, inputs),
        variables.RL_WANDB_RUN_ID: run.metadata.uid,
        variables.TINKER_BASE_URL: backend.url,
        **_wandb_settings(run, runtime),
    }
    keys = []
    if backend.key_secret:
        keys.append(secret_env_var(variables.TINKER_API_KEY, backend.key_secret))
    if wandb.key_secret:
        # Metrics are advisory: a missing W&B key must not keep the pod from starting.
        keys.append(secret_env_var(variables.WANDB_API_KEY, wandb.key_secret, optional=True))
    return [*_shared(run, "trainer"), *literals(plain), *keys]


def environment_env_vars(
    run: TrainingRun, inputs: RunInputs, sandbox_host: str, host: str | None = None
) -> list[k8s.EnvVar]:
    """No keys but the teacher's, of a run that learns from it, and `environment_keys`. `sandbox_host`: where the run's
    sandboxes are, if any; `host`: where the run's pod serves an environment in its own pod, None: on loopback.
    """
    path = environments_path(run.metadata.uid)
    api_url = f"http://{host}:{API_PORT}{path}" if host else API_URL
    inference_url = f"http://{host}:{INFERENCE_PORT}{path}" if host else INFERENCE_URL
    sandboxes = {variables.RL_SANDBOX_HOST: sandbox_host, variables.RL_SANDBOX_PORT: str(SANDBOX_PORT)}
    plain = literals({variables.RL_INFERENCE_URL: inference_url, **(sandboxes if run.spec.sandbox else {})})
    keys = [secret_env_var(secret.key, secret) for secret in inputs.environment_keys]
    return [*_shared(run, "environment", api_url), *plain, *_teacher(run, inputs), *keys]


def exposed_env_vars(container: str, env_vars: list[k8s.EnvVar]) -> list[k8s.EnvVar]:
    """For a container of a run's pod whose data ports serve environments in other pods."""
    if container not in _EXPOSED:
        return env_vars
    variable, port = _EXPOSED[container]
    # None before it is created.
    uid = next((each["value"] for each in env_vars if each["name"] == variables.RL_RUN_UID), "")
    url = f"http://0.0.0.0:{port}{environments_path(uid)}"
    kept = [each for each in env_vars if each["name"] != variable]
    counted = "1" if container == "api" else None
    return [*kept, *literals({variable: url, variables.RL_REMOTE_ENVIRONMENTS: counted})]


_EXPOSED: Final = {"api": (variables.RL_API_URL, API_PORT), "trainer": (variables.RL_INFERENCE_URL, INFERENCE_PORT)}
"""A server listens at the address that its clients use; the trainer still calls the api on loopback."""


def environments_path(run_uid: str) -> str:
    """A path that others do not know: without it, a caller is refused at the data ports, so that a server beside an
    environment cannot pass for one. It follows from the run's UID, which is random, and which that server cannot
    read.
    """
    return f"/{hashlib.sha256(f'environments of {run_uid}'.encode()).hexdigest()[:32]}"


def attempt_env_var(attempt: int) -> k8s.EnvVar:
    return {"name": variables.RL_ATTEMPT, "value": str(attempt)}


def ops_token_env_var(token: str) -> k8s.EnvVar:
    return {"name": variables.RL_OPS_TOKEN, "value": token}


def checkpoint_env_vars(run: TrainingRun) -> list[k8s.EnvVar]:
    """For the trainer of an attempt that continues: the checkpoint that it must find, whether it may do without, and
    the best weights so far, as JSON.
    """
    checkpoint, best = run.status.checkpoint, run.status.best
    wire = best.model_dump_json(exclude_none=True) if best else None
    told: dict[str, str | None] = {variables.RL_BEST_CHECKPOINT: wire}
    if checkpoint is not None:
        told |= {
            variables.RL_CHECKPOINT_STEP: str(checkpoint.step),
            variables.RL_CHECKPOINT_PATH: checkpoint.state_path,
            variables.RL_RESTART_IF_CHECKPOINT_LOST: "1" if run.spec.on_lost_checkpoint == "Restart" else None,
        }
    return literals(told)


def cost_env_vars(run: TrainingRun) -> list[k8s.EnvVar]:
    """For the trainer of any attempt: what the run may cost, and what it has cost in so many steps before."""
    cost, budget, progress = run.status.cost, run.spec.budget, run.status.progress
    told: dict[str, str | None] = {variables.RL_BUDGET: str(budget.amount) if budget else None}
    if cost:
        told |= {
            variables.RL_SPENT: str(cost.amount),
            variables.RL_SPENT_STEPS: str(progress.step) if progress else None,
        }
    return literals(told)


def place_env_vars(attempt: int, slot: int) -> list[k8s.EnvVar]:
    """For an environment in its own pod: only index 0 evaluates."""
    return [attempt_env_var(attempt), {"name": variables.RL_ENVIRONMENT_INDEX, "value": str(slot)}]


def share_env_vars(run: TrainingRun, slot: int) -> list[k8s.EnvVar]:
    """How many of the run's sandboxes the environment of a slot may hold at once: an equal share, when it begins."""
    if run.spec.sandbox is None:
        return []
    share, left = divmod(run.spec.sandbox.size, run.spec.environment_replicas)
    return literals({variables.RL_SANDBOX_SHARE: str(max(1, share + (slot < left)))})


def _teacher(run: TrainingRun, inputs: RunInputs) -> list[k8s.EnvVar]:
    """The address and the key that belongs to it."""
    teacher = inputs.teacher(run)
    if teacher is None:
        return []
    key = [secret_env_var(variables.TEACHER_API_KEY, teacher.key_secret)] if teacher.key_secret else []
    return [*literals({variables.TEACHER_URL: teacher.url}), *key]


def _shared(run: TrainingRun, container: str, api_url: str = API_URL) -> list[k8s.EnvVar]:
    return literals(
        {
            "HOME": SCRATCH,
            variables.RL_API_URL: api_url,
            variables.RL_OPS_PORT: str(OPS_PORTS[container]),
            variables.RL_RESULT_FILE: RESULT_FILE,
            variables.RL_RUN_NAME: run.metadata.name,
            variables.RL_RUN_NAMESPACE: run.metadata.namespace,
            variables.RL_RUN_UID: run.metadata.uid,
        }
    )


def _start_from(run: TrainingRun, parent: ParentRun | None) -> dict[str, str | None]:
    """The state to start from. Its origin is for the W&B run: the parent is not needed anymore."""
    start_from = run.spec.start_from
    if start_from is None:
        return {}
    along = {
        variables.RL_START_FROM_OPTIMIZER: "1" if start_from.with_optimizer else None,
        variables.RL_START_FROM_DATA: "1" if start_from.data == "continue" else None,
    }
    if start_from.run is None:
        return {variables.RL_START_FROM: start_from.checkpoint, **along}
    assert parent is not None, "what spec.startFrom.run names is among the inputs"
    assert parent.state is not None, "an accepted run's parent has a state"
    return {
        variables.RL_START_FROM: parent.state.state_path,
        **along,
        variables.RL_PARENT_RUN: parent.state.run,
        variables.RL_PARENT_STEP: str(parent.state.step),
        variables.RL_PARENT_WANDB_URL: parent.state.wandb_url,
    }


def _prices(run: TrainingRun, inputs: RunInputs) -> str | None:
    """As JSON: those of the model that the run trains."""
    prices = inputs.runtime.spec.backend.prices
    if prices is None:
        return None
    sections = inputs.sections(run)
    found = prices.of_model(base_model(sections.env, sections.openai))
    return found.to_json() if found else None


def _wandb_settings(run: TrainingRun, runtime: Runtime) -> dict[str, str | None]:
    """W&B's own variables: its library reads them by itself."""
    chosen, platform = run.spec.wandb, runtime.spec.wandb
    return {
        variables.WANDB_BASE_URL: platform.base_url,
        variables.WANDB_ENTITY: chosen.entity or platform.entity,
        variables.WANDB_NAME: chosen.name or run.metadata.name,
        variables.WANDB_NOTES: chosen.notes,
        variables.WANDB_PROJECT: chosen.project or platform.project,
        variables.WANDB_RUN_GROUP: chosen.group,
        variables.WANDB_TAGS: ",".join(chosen.tags),
    }


def literals(values: Mapping[str, str | None]) -> list[k8s.EnvVar]:
    """Unset and empty ones are left out. `$` is doubled: the kubelet would expand `$(NAME)` in a value."""
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in values.items() if value]


def secret_env_var(name: str, secret: SecretKey, optional: bool = False) -> k8s.EnvVar:
    reference: k8s.KeySelector = {"name": secret.name, "key": secret.key}
    if optional:
        reference["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}
