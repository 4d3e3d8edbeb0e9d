"""RLTrainingRun: one RL training run."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from rl_operator.api.model import ApiModel, ObjectMeta, validated
from rl_operator.api.names import API_VERSION, DEFAULT_RUNTIME, RUN_KIND
from rl_operator.api.refusal import Refusal
from rl_operator.api.spec_parts.sandboxes import RunSandboxes
from rl_operator.api.status_fields import SUSPENDED_PHASES, RunStatus

LONGEST_SECONDS = 10 * 365 * 86_400
"""Ten years. A pod's own deadline must fit into 31 bits."""
SMALLEST_BUDGET: Final = 0.01
LARGEST_BUDGET: Final = 1_000_000_000
MAX_ENVIRONMENT_REPLICAS = 64
"""The most that a run's trajectory API admits (`tinker_atropos.trajectory_api.service.held_leases.MAX_LEASES`)."""

TYPED_FROZEN_FIELDS: Final = ("environment", "runtime", "backoffLimit", "wandb", "startFrom", "sandbox")
"""Fields of the spec that are fixed once the run has started. The API server enforces it."""

FROZEN_FIELDS: Final = frozenset({*TYPED_FROZEN_FIELDS, "config", "trainer"})
"""Those and the free-form ones, whose contents no CRD rule can see."""


class WandbSettings(ApiModel):
    """Where the run's metrics go on Weights & Biases."""

    project: str | None = Field(default=None, max_length=128, description="W&B project; default: the runtime's.")
    entity: str | None = Field(default=None, max_length=128, description="W&B user or team; default: the runtime's.")
    group: str | None = Field(default=None, max_length=128, description="W&B group that the run belongs to.")
    name: str | None = Field(default=None, max_length=128, description="Display name on W&B; default: the run's name.")
    tags: tuple[Annotated[str, Field(pattern="^[^,]{1,64}$", max_length=64)], ...] = Field(
        default=(), max_length=64, description="W&B tags.", json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    notes: str | None = Field(default=None, max_length=4096, description="W&B notes.")


class StartFrom(ApiModel):
    """Weights to start a new run from; exactly one of `run` and `checkpoint`."""

    model_config = ConfigDict(
        json_schema_extra=validated("has(self.run) != has(self.checkpoint)", "name exactly one of run and checkpoint")
    )

    run: str | None = Field(default=None, max_length=63, description="Name of a finished run of the same namespace.")
    checkpoint: str | None = Field(
        default=None, pattern="^tinker://", max_length=1024, description="A tinker:// path of a state checkpoint."
    )
    with_optimizer: bool = Field(default=False, description="Also restore the optimizer's state.")
    data: Literal["restart", "continue"] = Field(
        default="restart",
        description="continue: go on in the order of items behind what was trained there, and with the environment's "
        "state (difficulty pools, a curriculum). restart: begin with the first item.",
    )


class RunBudget(ApiModel):
    """An amount of money."""

    # The API server rounds a field's minimum down where an integer was given: it takes 0 for at least 0.01.
    model_config = ConfigDict(
        json_schema_extra=validated(f"self.amount >= {SMALLEST_BUDGET}", f"amount must be at least {SMALLEST_BUDGET}")
    )

    amount: float = Field(ge=SMALLEST_BUDGET, le=LARGEST_BUDGET, description="How much, in that currency.")
    currency: str = Field(
        pattern="^[A-Z]{3}$",
        max_length=3,
        description="Its ISO 4217 code, like USD: that of the runtime's backend.prices.",
    )


class RunSpec(ApiModel):
    """What the user asks for."""

    environment: str = Field(
        min_length=1,
        max_length=253,
        description="An environment of the runtime's image, like sort_digits or verifiers/ID@VERSION; own/NAME; or "
        "./file.py (local mode only).",
    )
    runtime: str = Field(
        default=DEFAULT_RUNTIME, min_length=1, max_length=253, description="The RLRuntime that decides what may vary."
    )
    config: dict[str, Any] = Field(
        default_factory=dict, description="Fields of the environment's config that the runtime does not lock."
    )
    trainer: dict[str, Any] = Field(
        default_factory=dict, description="Fields of the trainer that the runtime does not lock."
    )
    wandb: WandbSettings = Field(default_factory=WandbSettings, description="Where metrics go on Weights & Biases.")
    start_from: StartFrom | None = Field(default=None, description="Weights that this new run starts from, at step 0.")
    on_lost_checkpoint: Literal["Fail", "Restart"] = Field(
        default="Fail",
        description="If the backend lost the newest checkpoint: Fail, or Restart from an older one or from step 0.",
    )
    backoff_limit: int = Field(default=3, ge=0, le=1000, description="Application failures that are tried again.")
    start_deadline_seconds: int | None = Field(
        default=1800,
        ge=1,
        le=LONGEST_SECONDS,
        description="Per attempt, from pod creation to the first group accepted.",
    )
    progress_deadline_seconds: int | None = Field(
        default=3600, ge=1, le=LONGEST_SECONDS, description="Longest time without a new step."
    )
    active_deadline_seconds: int | None = Field(
        default=None, ge=1, le=LONGEST_SECONDS, description="Longest time a run may take in all."
    )
    budget: RunBudget | None = Field(
        default=None,
        description="Most that the run may cost in all: {amount, currency}. It stops with a checkpoint before that "
        "and continues once this is raised. A change holds from the next attempt on.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=LONGEST_SECONDS,
        description="The run is deleted this long after its end; may be changed then, too.",
    )
    priority: int = Field(
        default=0,
        ge=-1000,
        le=1000,
        description="Among runs that wait for a slot of the runtime, the highest starts first, then the oldest.",
    )
    environment_replicas: int = Field(
        default=1, ge=1, le=MAX_ENVIRONMENT_REPLICAS, description="Environment processes in all."
    )
    sandbox: RunSandboxes | None = Field(
        default=None,
        description="Sandbox pods for the tools of the environment's agent. In local mode it has no effect: there "
        "sandboxes are processes.",
    )
    suspend: bool = Field(default=False, description="Draft before the start; stop with a checkpoint after it.")

    @model_serializer(mode="wrap")
    def _with_nulls_that_say_something(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        """`startDeadlineSeconds: null` means no deadline; left out, it would be the default's again."""
        fields = type(self).model_fields
        said = [name for name, field in fields.items() if field.default is not None and getattr(self, name) is None]
        return {**serialize(self), **{fields[name].alias or name: None for name in said}}


class TrainingRun(ApiModel):
    """An RLTrainingRun."""

    api_version: Literal["rl-operator.dev/v1alpha1"] = API_VERSION
    kind: Literal["RLTrainingRun"] = RUN_KIND
    metadata: ObjectMeta
    spec: RunSpec
    status: RunStatus = Field(default_factory=RunStatus)

    _faults: tuple[Refusal, ...] = PrivateAttr(default=())

    @property
    def faults(self) -> tuple[Refusal, ...]:
        """Why `config` or `trainer` could not be read; what could not is empty here."""
        return self._faults

    def is_unread(self, section: str) -> bool:
        """Whether `config` or `trainer` is empty here because it could not be read."""
        return any(fault.field.startswith(f"spec.{section}") for fault in self._faults)

    def with_faults(self, faults: tuple[Refusal, ...]) -> Self:
        copy = self.model_copy()
        copy._faults = faults  # noqa: SLF001 -- a copy of its own class
        return copy

    @property
    def key(self) -> tuple[str, str]:
        return self.metadata.namespace, self.metadata.name

    @property
    def without_sandbox_pods(self) -> Self:
        """As local mode reads it: there an environment starts its sandboxes itself, as processes."""
        return self.with_changes(spec=self.spec.with_changes(sandbox=None)) if self.spec.sandbox else self

    @property
    def is_looked_at(self) -> bool:
        """Whether the status refers to the current spec."""
        return self.status.observed_generation == self.metadata.generation

    @property
    def is_refused(self) -> bool:
        accepted = self.status.condition("Accepted")
        return accepted is not None and accepted.status == "False"

    @property
    def is_draft(self) -> bool:
        """Whether it has never started and waits for somebody to start it, also before it was reconciled."""
        return self.spec.suspend and self.status.start_time is None

    @property
    def at_rest(self) -> bool:
        """Finished, stopped, a draft, or refused: nothing more happens unless someone asks for it."""
        rests = self.is_refused or self.status.phase in SUSPENDED_PHASES
        return self.status.finished or (self.is_looked_at and rests)
