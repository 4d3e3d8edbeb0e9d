"""RLRuntime: the platform's side of a run. Decides what may vary, where it trains and what it may use."""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from rl_contract.env_vars import TEACHER_API_KEY, TEACHER_URL, TINKER_API_KEY, WANDB_API_KEY
from rl_contract.prices import TokenPrices
from rl_operator.api.model import (
    ApiModel,
    LabelValue,
    NameReference,
    ObjectMeta,
    ObjectName,
    ObservedModel,
    Url,
    all_validated,
    keyed_by,
    validated,
)
from rl_operator.api.names import API_VERSION, RUNTIME_KIND
from rl_operator.api.settings.fields import WIRED_FIELDS, Section
from rl_operator.api.spec_parts.container_resources import ResourceRequirements
from rl_operator.api.spec_parts.rollout_sinks import RuntimeRollouts
from rl_operator.api.spec_parts.sandboxes import RuntimeSandboxes
from rl_operator.api.status_fields import ConditionsStatus
from rl_operator.api.training_run import LONGEST_SECONDS

TRAINER_KEYS: Final = (TINKER_API_KEY, WANDB_API_KEY)
"""Variables that no environment ever gets."""

TEACHER_VARIABLES: Final = (TEACHER_URL, TEACHER_API_KEY)
"""A key that belongs to an address: both are the runtime's, and reach an environment together or not at all."""

RESERVED_VARIABLES: Final = "^(?:RL_.*|LD_.*|PYTHON.*|PATH|HOME)$"
"""Variables that determine how our containers run. Of two with the same name, a container gets the last."""

ENVIRONMENT_KEYS: Final = keyed_by("name", "key") | validated(
    f"self.all(secret, !(secret.key in {[*TRAINER_KEYS, *TEACHER_VARIABLES]}) && "
    f"!secret.key.matches('{RESERVED_VARIABLES}'))",
    f"{' and '.join(TRAINER_KEYS)} are the trainer's and never go to an environment; "
    "a teacher's key stands in spec.teacher of the runtime, beside its address; "
    "PATH, HOME, RL_*, LD_* and PYTHON* are set by the operator",
)
"""Schema of the Secret keys of environments: each once."""

MAX_BOUNDS: Final = 256

MOST_RUNS: Final = 1_000_000
"""More than any cluster holds."""


class SecretKey(ApiModel):
    """A key of a Secret in the run's namespace."""

    name: str = Field(max_length=253, description="Name of the Secret.")
    key: str = Field(max_length=253, description="Key in it.")


MOST_MONEY: Final = 1_000_000_000


class ModelPrices(ApiModel):
    """What a million tokens cost."""

    prefill: float = Field(ge=0, le=MOST_MONEY, description="Of prompts, and of passes that only score tokens.")
    sample: float = Field(ge=0, le=MOST_MONEY, description="Sampled ones.")
    train: float = Field(ge=0, le=MOST_MONEY, description="Of the sequences that are trained on, prompts included.")


ALL_PRICES: Final = "name all of prefill, sample and train, or none of them"
SOME_PRICES: Final = "name prefill, sample and train, or the prices of models"


class BackendPrices(ApiModel):
    """What the backend charges for a million tokens: for any model, and for some of them."""

    model_config = ConfigDict(
        json_schema_extra=all_validated(
            ("has(self.prefill) == has(self.sample) && has(self.sample) == has(self.train)", ALL_PRICES),
            ("has(self.prefill) || (has(self.models) && self.models.size() > 0)", SOME_PRICES),
        )
    )

    currency: str = Field(default="USD", pattern="^[A-Z]{3}$", max_length=3, description="Its ISO 4217 code.")
    prefill: float | None = Field(
        default=None, ge=0, le=MOST_MONEY, description="Of prompts, and of passes that only score tokens."
    )
    sample: float | None = Field(default=None, ge=0, le=MOST_MONEY, description="Sampled ones.")
    train: float | None = Field(
        default=None, ge=0, le=MOST_MONEY, description="Of the sequences that are trained on, prompts included."
    )
    models: dict[str, ModelPrices] = Field(
        default_factory=dict, max_length=64, description="By base model, where they are others."
    )

    def of_model(self, base_model: str | None) -> TokenPrices | None:
        """None: it has none here."""
        found = self.models.get(base_model or "", self)
        if found.prefill is None or found.sample is None or found.train is None:
            return None
        return TokenPrices(found.prefill, found.sample, found.train, self.currency)


class Backend(ApiModel):
    """The Tinker API that trains and samples."""

    url: Url | None = Field(default=None, description="Base URL; default: the SDK's own.")
    key_secret: SecretKey | None = Field(default=None, description="Where the TINKER_API_KEY is.")
    ephemeral: bool = Field(
        default=False,
        description="True: its checkpoints are deleted with its pod, as on an emptyDir. Condition Ready warns of it.",
    )
    prices: BackendPrices | None = Field(
        default=None, description="What it charges: a run then shows its cost, and may have a budget."
    )


class RuntimeWandb(ApiModel):
    """Weights & Biases defaults and key."""

    project: str | None = Field(default=None, max_length=128, description="Project of runs that name none.")
    entity: str | None = Field(default=None, max_length=128, description="Entity of runs that name none.")
    base_url: Url | None = Field(default=None, alias="baseURL", description="W&B server; default: the SDK's own.")
    key_secret: SecretKey | None = Field(default=None, description="Where the WANDB_API_KEY is; none: W&B is off.")


class InferenceProvider(ApiModel):
    """An OpenAI-compatible endpoint that tries environments before anything is trained."""

    url: str = Field(pattern="^https?://", max_length=1024, description="Base URL, e.g. https://openrouter.ai/api/v1.")
    key_secret: SecretKey | None = Field(default=None, description="Where its key is; none: it needs no key.")
    models: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        default=(), max_length=16, description="Models to try when none are named."
    )


class RuntimeTeacher(ApiModel):
    """A second model, which says what it would have sampled in place of the policy's tokens."""

    url: str = Field(pattern="^https?://", max_length=1024, description="Where it is served, e.g. http://teacher:8100.")
    key_secret: SecretKey | None = Field(default=None, description="Where its key is; none: it needs no key.")
    own_environments: bool = Field(
        default=False,
        description="True: RLEnvironments with code of their own and harness/NAME, whose command is a user's, may use "
        "it, too, and can read the key. Without keySecret they may anyway.",
    )


class ConfigSections(ApiModel):
    """Values by section of the config file."""

    env: dict[str, Any] = Field(default_factory=dict, description="Fields of the environment's config.")
    openai: dict[str, Any] = Field(default_factory=dict, description="Fields of the inference client.")
    trainer: dict[str, Any] = Field(default_factory=dict, description="Fields of the trainer.")


class Bound(ApiModel):
    """The range of a number."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            "!has(self.min) || !has(self.max) || self.min <= self.max", "no value is at least min and at most max"
        )
    )

    min: float | None = Field(default=None, description="Smallest value allowed.")
    max: float | None = Field(default=None, description="Largest value allowed.")


def _bounds_of(section: Section, description: str) -> Any:
    """Ranges of one section. The operator sets the wired fields itself, so a range of one would hold nothing."""
    wired = sorted(name for of, name in WIRED_FIELDS if of == section)
    rule = validated(
        f"self.all(name, !(name in {wired}))", f"{', '.join(wired)} are set by the operator: leave them out"
    )
    return Field(default_factory=dict, max_length=MAX_BOUNDS, description=description, json_schema_extra=rule)


class Bounds(ApiModel):
    """Ranges by section of the config file."""

    env: dict[str, Bound] = _bounds_of("env", "Ranges of the environment's fields, by name, as `taskset.size`.")
    trainer: dict[str, Bound] = _bounds_of("trainer", "Ranges of the trainer's fields.")


class Limits(ApiModel):
    """What one runtime may use."""

    max_active_runs: int | None = Field(
        default=None,
        ge=0,
        le=MOST_RUNS,
        description="Runs that may be active at once; others wait in a queue. 0: none starts.",
    )
    max_active_runs_per_namespace: int | None = Field(
        default=None,
        ge=1,
        le=MOST_RUNS,
        description="Of these, the share of one namespace: its other runs wait, and hold up no other namespace's.",
    )
    max_priority: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Highest spec.priority that a run may have. By default no run goes before an older one.",
    )
    active_deadline_seconds: int | None = Field(
        default=None, ge=1, le=LONGEST_SECONDS, description="Longest time a run may take."
    )
    environment_replicas: int | None = Field(
        default=None, ge=1, le=MOST_RUNS, description="Most environment processes of a run."
    )


class ContainerResources(ApiModel):
    """Resources of the three containers."""

    api: ResourceRequirements = Field(default_factory=ResourceRequirements, description="The trajectory API.")
    trainer: ResourceRequirements = Field(default_factory=ResourceRequirements, description="The trainer.")
    environment: ResourceRequirements = Field(default_factory=ResourceRequirements, description="The environment.")


class Toleration(ApiModel):
    """A Kubernetes toleration."""

    key: str | None = Field(default=None, max_length=317, description="Taint key.")
    operator: Literal["Exists", "Equal"] | None = Field(default=None, description="How key and value match.")
    value: LabelValue | None = Field(default=None, description="Taint value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(default=None, description="Effect.")
    toleration_seconds: int | None = Field(default=None, description="How long a NoExecute taint is tolerated.")


class LabelRequirement(ApiModel):
    """One requirement of a Kubernetes label selector."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "In and NotIn take at least one value, Exists and DoesNotExist none",
        )
    )

    key: str = Field(min_length=1, max_length=317, description="Name of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="What must hold of it.")
    values: tuple[Annotated[str, Field(max_length=63)], ...] = Field(
        default=(), max_length=64, description="The values of In and NotIn."
    )


class LabelSelector(ApiModel):
    """A Kubernetes label selector: all requirements must hold; an empty one selects everything."""

    match_labels: dict[str, LabelValue] = Field(
        default_factory=dict, max_length=64, description="Labels and the values they must have."
    )
    match_expressions: tuple[LabelRequirement, ...] = Field(
        default=(), max_length=32, description="Requirements of labels."
    )


class EgressRule(ApiModel):
    """A destination that environments in their own pods may connect to."""

    model_config = ConfigDict(
        json_schema_extra=validated("isCIDR(self.cidr)", "cidr must be a range like 203.0.113.0/24")
    )

    cidr: str = Field(min_length=1, max_length=64, description="Addresses, e.g. 203.0.113.0/24.")
    ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = Field(
        default=(), max_length=32, description="TCP ports; none: all of them."
    )


class RuntimeSpec(ApiModel):
    """What the platform decides."""

    image: str = Field(
        min_length=1, max_length=1024, description="Image of the containers: api, trainer and environment."
    )
    environment_image: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Image of the environment, where it is another one: of the container in the run's pod, and of "
        "environment pods without an image of their own. The environments are read from it; default: image.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="As in pods, for both images."
    )
    image_pull_secrets: tuple[NameReference, ...] = Field(
        default=(), max_length=32, description="As in pods, for both images.", json_schema_extra=keyed_by("name")
    )
    backend: Backend = Field(default_factory=Backend, description="The Tinker API.")
    wandb: RuntimeWandb = Field(default_factory=RuntimeWandb, description="Weights & Biases.")
    inference: InferenceProvider | None = Field(
        default=None,
        description="The provider that answers when an environment is tried with other models (rl_test_inference).",
    )
    teacher: RuntimeTeacher | None = Field(
        default=None,
        description="The teacher of runs that set teacher_top_k; its address and its key never come from a run.",
    )
    locked: ConfigSections = Field(default_factory=ConfigSections, description="Values that a run may not change.")
    bounds: Bounds = Field(default_factory=Bounds, description="Ranges that a run must keep to.")
    defaults: ConfigSections = Field(default_factory=ConfigSections, description="Values where a run sets none.")
    limits: Limits = Field(default_factory=Limits, description="What runs may use.")
    namespace_selector: LabelSelector | None = Field(
        default=None, description="Labels of the namespaces whose runs may use the runtime; default: all."
    )
    resources: ContainerResources = Field(default_factory=ContainerResources, description="Container resources.")
    sandbox: RuntimeSandboxes | None = Field(
        default=None, description="Bounds of the sandbox pods that runs may ask for; without it they get none."
    )
    rollouts: RuntimeRollouts | None = Field(
        default=None,
        description="Where rollouts outlive their pods; without it they can be read only while the run trains.",
    )
    termination_grace_period_seconds: int = Field(
        default=60,
        ge=1,
        le=86_400,
        description="Seconds from SIGTERM to SIGKILL: for the step in progress, then to save.",
    )
    runtime_class_name: ObjectName | None = Field(default=None, description="As in pods.")
    node_selector: dict[str, LabelValue] = Field(default_factory=dict, max_length=64, description="As in pods.")
    tolerations: tuple[Toleration, ...] = Field(default=(), max_length=64, description="As in pods.")
    priority_class_name: ObjectName | None = Field(default=None, description="As in pods.")
    pod_labels: dict[str, LabelValue] = Field(default_factory=dict, max_length=64, description="Labels added to pods.")
    pod_annotations: dict[str, Annotated[str, Field(max_length=10_000)]] = Field(
        default_factory=dict, max_length=64, description="Annotations added to pods."
    )
    secret_environment: tuple[SecretKey, ...] = Field(
        default=(),
        max_length=64,
        description="Secret keys that environments may get, each as the variable of its key's name: bundled ones get "
        "all of them, an RLEnvironment those that it asks for, harness/NAME none.",
        json_schema_extra=ENVIRONMENT_KEYS,
    )
    environment_egress: tuple[EgressRule, ...] = Field(
        default=(), max_length=64, description="Where environments in their own pods may connect to, besides DNS."
    )

    @property
    def image_of_environments(self) -> str:
        """It runs them, and the catalog is read from it."""
        return self.environment_image or self.image


class RuntimeEnvironment(ObservedModel):
    """One environment of the runtime's image."""

    name: str = Field(description="Name to use in `spec.environment`.")
    description: str = Field(default="", description="One line.")


class FieldsReference(ObservedModel):
    """The ConfigMap with all fields."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")


class RuntimeStatus(ConditionsStatus):
    """What is known about the runtime."""

    environments: tuple[RuntimeEnvironment, ...] = Field(
        default=(), description="Environments of the image.", json_schema_extra=keyed_by("name")
    )
    fields_ref: FieldsReference | None = Field(
        default=None, description="ConfigMap with every environment's fields: type, default, locked, bounds."
    )
    image_id: str | None = Field(
        default=None, alias="imageID", description="Digest of the image that the environments were read from."
    )
    warnings: tuple[str, ...] = Field(default=(), max_length=10, description="Files of the image that cannot be read.")


class Runtime(ApiModel):
    """An RLRuntime."""

    api_version: Literal["rl-operator.dev/v1alpha1"] = API_VERSION
    kind: Literal["RLRuntime"] = RUNTIME_KIND
    metadata: ObjectMeta
    spec: RuntimeSpec
    status: RuntimeStatus = Field(default_factory=RuntimeStatus)
