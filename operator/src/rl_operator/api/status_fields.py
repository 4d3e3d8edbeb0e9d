"""The status of an RLTrainingRun, as the operator writes it."""

from typing import Literal

from pydantic import Field

from rl_contract.status_metrics import RunMetrics
from rl_contract.trainer_messages import BestCheckpoint, EvaluatedFigures, ItemAccount, RunCost, WandbStatus
from rl_operator.api.model import ObservedModel, keyed_by
from rl_operator.api.refusal import Refusal

Phase = Literal["Draft", "Pending", "Starting", "Running", "Stopping", "Stopped", "Succeeded", "Failed"]
TERMINAL_PHASES: frozenset[Phase] = frozenset({"Succeeded", "Failed"})
SUSPENDED_PHASES: frozenset[Phase] = frozenset({"Draft", "Stopped"})
"""spec.suspend holds the run: before its first start, or after an attempt."""


class Condition(ObservedModel):
    """A Kubernetes condition."""

    type: str = Field(description="Type of the condition.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(description="Stable CamelCase word for the cause.")
    message: str = Field(default="", description="One sentence: what is the case and what to do.")
    last_transition_time: str = Field(description="When the status last changed.")
    observed_generation: int = Field(default=0, description="Generation of the spec that this speaks of.")


class ConditionsStatus(ObservedModel):
    """What the statuses of RLRuntimes and RLEnvironments begin with."""

    observed_generation: int = Field(default=-1, description="Generation of the spec that this speaks of.")
    conditions: tuple[Condition, ...] = Field(
        default=(), description="Conditions, by type.", json_schema_extra=keyed_by("type")
    )

    def condition(self, type_: str) -> Condition | None:
        return next((c for c in self.conditions if c.type == type_), None)


class Progress(ObservedModel):
    """Training progress of the current attempt, which begins with its checkpoint's steps."""

    step: int = Field(description="Optimizer steps trained.")
    from_step: int = Field(default=0, description="The step that the current attempt continued from.")
    total_steps: int = Field(description="Optimizer steps of the whole run.")
    stopped_early: str | None = Field(
        default=None, description="Why step is the last one before totalSteps: trainer.early_stopping. It is a success."
    )
    percent: int = Field(description="step / totalSteps, in percent.")
    seconds_per_step: float | None = Field(default=None, description="Recent mean.")
    eta_seconds: int | None = Field(
        default=None,
        description="Seconds left, as the trainer estimated after its newest step: steps, checkpoints and evaluations, "
        "the final one included once one was made in this attempt. While its trainer is not heard: the steps at this "
        "pace.",
    )


class HistorySample(ObservedModel):
    """One point of the curve of the rollout reward."""

    step: int = Field(description="Optimizer steps trained.")
    rollout_reward: float = Field(description="The rollout reward at that step.")


class ContainerStatus(ObservedModel):
    """One container of the current attempt."""

    name: str = Field(description="api, trainer or environment.")
    state: Literal["Waiting", "Running", "Ready", "Terminated"] = Field(description="What it does.")
    exit_code: int | None = Field(default=None, description="Exit code, once terminated.")
    reason: str | None = Field(default=None, description="Why it waits or ended, in Kubernetes' word.")
    restarts: int = Field(default=0, description="How often it was started again.")


class Checkpoint(ObservedModel):
    """The newest state checkpoint."""

    step: int = Field(description="Optimizer step that it holds.")
    state_path: str = Field(description="tinker:// path that training can continue from.")
    expires_at: str | None = Field(default=None, description="When the backend deletes it.")


class Weights(ObservedModel):
    """The trained weights."""

    sampler_path: str = Field(description="tinker:// path to sample from.")
    state_path: str | None = Field(default=None, description="tinker:// path to train on from.")
    expires_at: str | None = Field(default=None, description="When the backend deletes them.")


class Failure(ObservedModel):
    """Why the last attempt, or the run, failed."""

    reason: str = Field(description="Stable CamelCase word.")
    container: str | None = Field(default=None, description="The container that failed first.")
    exit_code: int | None = Field(default=None, description="Its exit code.")
    message: str = Field(default="", description="What it said, secrets removed.")


class Attempt(ObservedModel):
    """One attempt of the run: one pod."""

    attempt: int = Field(description="Number, from 1.")
    pod: str = Field(description="Name of its pod.")
    started: str | None = Field(default=None, description="When the pod was created.")
    ended: str | None = Field(default=None, description="When it was over.")
    reason: str | None = Field(default=None, description="How it ended.")
    from_step: int = Field(default=0, description="The step that it continued from.")
    steps: int = Field(default=0, description="Steps trained at its end, those before fromStep included.")


class EnvironmentPods(ObservedModel):
    """Environments that run in their own pods: custom ones, and more than one replica."""

    desired: int = Field(description="Pods that should work.")
    ready: int = Field(description="Pods whose groups are accepted.")
    failures: int = Field(default=0, description="Pods that failed in the current attempt.")


class SandboxPods(ObservedModel):
    """The pods of spec.sandbox."""

    desired: int = Field(description="Pods that should be there: spec.sandbox.size.")
    ready: int = Field(description="Pods that run: free, or in use by a rollout.")
    replaced: int = Field(default=0, description="Pods of the current attempt that ended and were replaced.")
    observed_at: str | None = Field(default=None, description="When these numbers last changed.")


class QueueStatus(ObservedModel):
    """The queue position of a run that waits for a slot of its runtime."""

    place: int = Field(description="From 1; beyond 10 rounded to one significant digit.")
    active: int = Field(description="Runs of the runtime that hold a slot; with namespace, those of that namespace.")
    limit: int = Field(description="The runtime's limits.maxActiveRuns; with namespace, maxActiveRunsPerNamespace.")
    namespace: str | None = Field(
        default=None, description="The run's namespace, if its share of the runtime is what the run waits for."
    )
    gave_back: str | None = Field(
        default=None,
        description="When it gave the slot of its attempt back: the attempt's pod could not be created, or start.",
    )


class StartedFrom(ObservedModel):
    """The run that this one began from."""

    run: str = Field(description="Name of the run.")
    uid: str = Field(description="Its uid.")
    step: int = Field(description="Its step that the weights are of.")
    state_path: str = Field(description="The state that was loaded.")
    wandb_url: str | None = Field(default=None, description="Its page on Weights & Biases.")


class FrozenSettings(ObservedModel):
    """Hashes of the free-form settings that the run started with: CRD rules cannot see into them."""

    config: str = Field(description="Hash of spec.config.")
    trainer: str = Field(description="Hash of spec.trainer.")


class RunStatus(ObservedModel):
    """The observed state of the run: the one place where people, agents and GitOps look."""

    observed_generation: int = Field(default=-1, description="Generation of the spec that this status speaks of.")
    phase: Phase | None = Field(default=None, description="Summary for people; conditions say more.")
    message: str | None = Field(default=None, description="What happens now, and what to do.")
    conditions: tuple[Condition, ...] = Field(
        default=(), description="Conditions, by type.", json_schema_extra=keyed_by("type")
    )
    start_time: str | None = Field(default=None, description="When the spec was frozen; never cleared.")
    completion_time: str | None = Field(default=None, description="When the run was over.")
    attempt: int | None = Field(default=None, description="Number of the current attempt, from 1.")
    attempt_start_time: str | None = Field(
        default=None,
        description="When the current attempt began; while it has no pod, its start deadline counts from there.",
    )
    attempts: tuple[Attempt, ...] = Field(
        default=(), description="The last five attempts that ended.", json_schema_extra=keyed_by("attempt")
    )
    failed_attempts: int | None = Field(
        default=None, description="Application failures so far, compared with backoffLimit."
    )
    pod_name: str | None = Field(default=None, description="Pod of the current attempt.")
    config_map_name: str | None = Field(default=None, description="ConfigMap with the rendered config and pod.")
    config_hash: str | None = Field(
        default=None, description="SHA-256 of its content; of a draft: of what it would be if it started now."
    )
    frozen: FrozenSettings | None = Field(default=None, description="What the settings were at the start.")
    progress: Progress | None = Field(default=None, description="How far the training is.")
    metrics: RunMetrics | None = Field(default=None, description="Latest metrics; advisory.")
    evaluation: EvaluatedFigures | None = Field(
        default=None,
        description="All figures of the newest evaluation, if it has several: held-out sets, pass@k, greedy answers.",
    )
    cost: RunCost | None = Field(default=None, description="What it has cost, if the runtime knows prices.")
    items: ItemAccount | None = Field(
        default=None, description="What became of the items that it was dealt; as its trainer told, advisory."
    )
    history: tuple[HistorySample, ...] = Field(
        default=(), description="At most ten samples of the curve of the rollout reward."
    )
    wandb: WandbStatus | None = Field(default=None, description="The run on Weights & Biases.")
    containers: tuple[ContainerStatus, ...] = Field(
        default=(), description="Containers of the current attempt.", json_schema_extra=keyed_by("name")
    )
    environments: EnvironmentPods | None = Field(default=None, description="Environments in pods of their own.")
    sandboxes: SandboxPods | None = Field(default=None, description="Sandbox pods, if the run asks for them.")
    queue: QueueStatus | None = Field(
        default=None, description="Its queue position, while it waits for a slot of its runtime."
    )
    admitted_time: str | None = Field(
        default=None, description="When the current attempt's pod was no longer gated; its start deadline begins then."
    )
    history_name: str | None = Field(
        default=None, description="ConfigMap with a history of at most 500 points, once an attempt has ended."
    )
    started_from: StartedFrom | None = Field(default=None, description="The run that this one began from.")
    checkpoint: Checkpoint | None = Field(default=None, description="Newest state checkpoint.")
    best: BestCheckpoint | None = Field(
        default=None, description="Weights with the best held-out figure, of those that were saved and evaluated."
    )
    weights: Weights | None = Field(default=None, description="The trained weights, once they exist.")
    failure: Failure | None = Field(default=None, description="Why the last attempt, or the run, failed.")
    refusals: tuple[Refusal, ...] = Field(default=(), description="What is refused of the spec, and why; at most 3.")

    @property
    def finished(self) -> bool:
        return self.phase in TERMINAL_PHASES

    def condition(self, type_: str) -> Condition | None:
        return next((c for c in self.conditions if c.type == type_), None)
