"""The environment variables of a run's processes: who sets each of them, and who reads it.

Each constant is named like its variable. Values are text; one that is empty counts as not set.
"""

from dataclasses import dataclass
from typing import Final, Literal

Setter = Literal["operator", "person", "image"]
Reader = Literal["api", "trainer", "environment", "trial", "rollout reader", "library"]
"""`library`: Tinker's, W&B's and the object store's own read it by themselves, in the same process."""


@dataclass(frozen=True, slots=True)
class Variable:
    """`set_by`: the operator, by rendering or in local mode; whoever starts a process by hand; or a container image."""

    name: str
    set_by: tuple[Setter, ...]
    read_by: tuple[Reader, ...]
    meaning: str


_VARIABLES: Final[list[Variable]] = []
_ALL: Final[tuple[Reader, ...]] = ("api", "trainer", "environment")
_OPERATOR: Final[tuple[Setter, ...]] = ("operator",)
_PERSON: Final[tuple[Setter, ...]] = ("person",)


def _variable(name: str, set_by: tuple[Setter, ...], read_by: tuple[Reader, ...], meaning: str) -> str:
    _VARIABLES.append(Variable(name, set_by, read_by, meaning))
    return name


# --- where processes are, and whose they are -------------------------------------------------------------------------
RL_API_URL: Final = _variable(
    "RL_API_URL", _OPERATOR, _ALL, "the trajectory API: the address that it binds is the one that its clients use"
)
RL_INFERENCE_URL: Final = _variable(
    "RL_INFERENCE_URL",
    ("operator", "person"),
    ("trainer", "environment", "trial"),
    "the trainer's inference server, likewise; for a process that tries an environment: the provider",
)
RL_INFERENCE_API_KEY: Final = _variable(
    "RL_INFERENCE_API_KEY", ("operator", "person"), ("trial",), "the provider's key, which no other process sees"
)
RL_OPS_HOST: Final = _variable(
    "RL_OPS_HOST", _OPERATOR, (*_ALL, "rollout reader"), "the address of the ops port; default: all of the machine's"
)
RL_OPS_PORT: Final = _variable(
    "RL_OPS_PORT", _OPERATOR, (*_ALL, "rollout reader"), "the ops port; default: `processes.OPS_PORTS`"
)
RL_OPS_TOKEN: Final = _variable(
    "RL_OPS_TOKEN",
    _OPERATOR,
    ("trainer", "rollout reader"),
    "what callers of the ops port must send as `processes.OPS_TOKEN_HEADER`, for all but probes and metrics; drawn for "
    "each pod",
)
RL_RESULT_FILE: Final = _variable(
    "RL_RESULT_FILE", _OPERATOR, _ALL, "the container's termination message: the trainer's result, or why one failed"
)
RL_CONFIG_SHA256: Final = _variable(
    "RL_CONFIG_SHA256",
    _OPERATOR,
    ("trainer", "environment"),
    "SHA-256 of the config file that the run was started with: another file is refused",
)
RL_SOURCE_SHA256: Final = _variable(
    "RL_SOURCE_SHA256",
    _OPERATOR,
    ("environment",),
    "likewise for the files of an own environment: `content_hash.sha256_of_texts` of them",
)
RL_LOG_FORMAT: Final = _variable("RL_LOG_FORMAT", ("operator", "person"), _ALL, "`text` or `json`")
RL_RUN_NAME: Final = _variable("RL_RUN_NAME", _OPERATOR, _ALL, "the run's name")
RL_RUN_NAMESPACE: Final = _variable("RL_RUN_NAMESPACE", _OPERATOR, _ALL, "the run's namespace")
RL_RUN_UID: Final = _variable("RL_RUN_UID", _OPERATOR, _ALL, "the run's UID: it marks checkpoints")
RL_ATTEMPT: Final = _variable("RL_ATTEMPT", _OPERATOR, _ALL, "the number of the attempt, from 1")

# --- what a trainer continues from, and what it may cost -------------------------------------------------------------
RL_CHECKPOINT_STEP: Final = _variable(
    "RL_CHECKPOINT_STEP", _OPERATOR, ("trainer",), "the step of the checkpoint that an attempt must find"
)
RL_CHECKPOINT_PATH: Final = _variable("RL_CHECKPOINT_PATH", _OPERATOR, ("trainer",), "its path at the backend")
RL_RESTART_IF_CHECKPOINT_LOST: Final = _variable(
    "RL_RESTART_IF_CHECKPOINT_LOST", _OPERATOR, ("trainer",), "1: without it, train from an older one or the beginning"
)
RL_BEST_CHECKPOINT: Final = _variable(
    "RL_BEST_CHECKPOINT", _OPERATOR, ("trainer",), "the best weights of earlier attempts: `status.best` as JSON"
)
RL_START_FROM: Final = _variable("RL_START_FROM", _OPERATOR, ("trainer",), "the state that a new run starts from")
RL_START_FROM_OPTIMIZER: Final = _variable(
    "RL_START_FROM_OPTIMIZER", _OPERATOR, ("trainer",), "1: with the optimizer of that state"
)
RL_START_FROM_DATA: Final = _variable(
    "RL_START_FROM_DATA", _OPERATOR, ("trainer",), "1: behind its position in the data, with its environment's state"
)
RL_PARENT_RUN: Final = _variable("RL_PARENT_RUN", _OPERATOR, ("trainer",), "the run whose state that is")
RL_PARENT_STEP: Final = _variable("RL_PARENT_STEP", _OPERATOR, ("trainer",), "its step")
RL_PARENT_WANDB_URL: Final = _variable("RL_PARENT_WANDB_URL", _OPERATOR, ("trainer",), "its W&B run")
RL_PRICES: Final = _variable("RL_PRICES", _OPERATOR, ("trainer",), "the backend's prices: `prices.TokenPrices` as JSON")
RL_BUDGET: Final = _variable("RL_BUDGET", _OPERATOR, ("trainer",), "what the run may cost in all")
RL_SPENT: Final = _variable("RL_SPENT", _OPERATOR, ("trainer",), "what earlier attempts have cost")
RL_SPENT_STEPS: Final = _variable("RL_SPENT_STEPS", _OPERATOR, ("trainer",), "for so many steps")
RL_DATA_DIR: Final = _variable("RL_DATA_DIR", _PERSON, ("trainer",), "the folder of the ledger of samples")

# --- environments -----------------------------------------------------------------------------------------------------
RL_REMOTE_ENVIRONMENTS: Final = _variable(
    "RL_REMOTE_ENVIRONMENTS", _OPERATOR, ("api",), "1: environments run in other pods, and are replaced there"
)
RL_ENVIRONMENT_GRACE: Final = _variable(
    "RL_ENVIRONMENT_GRACE", _PERSON, ("api",), "seconds without any of them until the run fails"
)
RL_ENVIRONMENT_INDEX: Final = _variable(
    "RL_ENVIRONMENT_INDEX", _OPERATOR, ("environment",), "which of them it is, from 0; 0 evaluates"
)
RL_SANDBOX_HOST: Final = _variable(
    "RL_SANDBOX_HOST", _OPERATOR, ("environment",), "where a connection leads to any sandbox of the run"
)
RL_SANDBOX_PORT: Final = _variable("RL_SANDBOX_PORT", _OPERATOR, ("environment",), "the port there")
RL_SANDBOX_SHARE: Final = _variable(
    "RL_SANDBOX_SHARE", _OPERATOR, ("environment",), "how many of them one environment process holds at most"
)
RL_OPENENV: Final = _variable(
    "RL_OPENENV", _OPERATOR, ("environment", "trial"), "where the OpenEnv server is, and its limits, as JSON"
)
RL_OPENENV_PORT: Final = _variable(
    "RL_OPENENV_PORT", _OPERATOR, (), "the port of a server beside the environment: RL_OPENENV refers to it"
)
RL_TASKSETS: Final = _variable(
    "RL_TASKSETS", ("image",), ("environment", "trial"), "folders with Verifiers tasksets, separated as in PATH"
)
RL_SANDBOX: Final = _variable(
    "RL_SANDBOX", ("image",), ("environment", "trial"), "1: the process is in a sandbox, and may start programs"
)
RL_TRAINER_DEADLINE: Final = _variable(
    "RL_TRAINER_DEADLINE", _PERSON, ("environment",), "the longest wait for the trainer, in seconds"
)
RL_FIRST_GROUP_DEADLINE: Final = _variable(
    "RL_FIRST_GROUP_DEADLINE", _PERSON, ("environment",), "the longest wait for a first group, in seconds"
)
RL_NEXT_ITEM_DEADLINE: Final = _variable(
    "RL_NEXT_ITEM_DEADLINE", _PERSON, ("environment",), "the longest time without an item, in seconds"
)

TEACHER_URL: Final = _variable(
    "TEACHER_URL",
    ("operator", "person"),
    ("environment",),
    "the teacher: no config names one, because its key goes there",
)
TEACHER_API_KEY: Final = _variable(
    "TEACHER_API_KEY",
    ("operator", "person"),
    ("environment",),
    "its key; for `tinker-atropos teacher`: what it asks for",
)

# --- where rollouts are kept ------------------------------------------------------------------------------------------
RL_ROLLOUTS_DIR: Final = _variable(
    "RL_ROLLOUTS_DIR", _OPERATOR, ("trainer", "rollout reader"), "the folder of rollout files"
)
RL_ROLLOUTS_URL: Final = _variable(
    "RL_ROLLOUTS_URL", _OPERATOR, ("trainer", "rollout reader"), "where they are put as well: `s3://BUCKET/FOLDER`"
)
RL_ROLLOUTS_SECRET: Final = _variable(
    "RL_ROLLOUTS_SECRET", _OPERATOR, ("trainer", "rollout reader"), "the Secret that the keys are from, for a message"
)
RL_ROLLOUTS_CA_FILE: Final = _variable(
    "RL_ROLLOUTS_CA_FILE",
    _OPERATOR,
    ("trainer", "rollout reader"),
    "certificates of authorities to trust besides the system's, in PEM",
)
RL_ROLLOUTS_CA_SOURCE: Final = _variable(
    "RL_ROLLOUTS_CA_SOURCE", _OPERATOR, ("trainer", "rollout reader"), "where that file is from, for a message"
)
AWS_ENDPOINT_URL: Final = _variable(
    "AWS_ENDPOINT_URL", _OPERATOR, ("trainer", "rollout reader"), "the store's server, if it is not Amazon's"
)
AWS_REGION: Final = _variable("AWS_REGION", _OPERATOR, ("library",), "its region")
AWS_ACCESS_KEY_ID: Final = _variable(
    "AWS_ACCESS_KEY_ID", _OPERATOR, ("trainer", "rollout reader"), "its key; default: the identity of the pod"
)
AWS_SECRET_ACCESS_KEY: Final = _variable(
    "AWS_SECRET_ACCESS_KEY", _OPERATOR, ("trainer", "rollout reader"), "and the key's secret"
)
STORE_KEYS: Final = (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)
"""Keys of the store's Secret, too."""

# --- the backend, and W&B ---------------------------------------------------------------------------------------------
TINKER_BASE_URL: Final = _variable("TINKER_BASE_URL", ("operator", "person"), ("trainer", "library"), "the backend")
TINKER_API_KEY: Final = _variable("TINKER_API_KEY", ("operator", "person"), ("trainer", "library"), "its key")
RL_WANDB_RUN_ID: Final = _variable("RL_WANDB_RUN_ID", _OPERATOR, ("trainer",), "the id of the W&B run of all attempts")
RL_GRACE_SECONDS: Final = _variable(
    "RL_GRACE_SECONDS", _OPERATOR, ("trainer",), "the pod's `terminationGracePeriodSeconds`: what a stop may take"
)
RL_WANDB_CLOSE_SECONDS: Final = _variable(
    "RL_WANDB_CLOSE_SECONDS", _PERSON, ("trainer",), "how long W&B may take at the end"
)
WANDB_API_KEY: Final = _variable("WANDB_API_KEY", ("operator", "person"), ("trainer", "library"), "W&B's key")
WANDB_MODE: Final = _variable("WANDB_MODE", ("operator", "person"), ("trainer", "library"), "`offline` or `disabled`")
WANDB_BASE_URL: Final = _variable("WANDB_BASE_URL", ("operator", "person"), ("library",), "the W&B server")
WANDB_DIR: Final = _variable("WANDB_DIR", _OPERATOR, ("library",), "its folder, in local mode")
WANDB_ENTITY: Final = _variable("WANDB_ENTITY", _OPERATOR, ("library",), "the owner of the project")
WANDB_PROJECT: Final = _variable("WANDB_PROJECT", _OPERATOR, ("library",), "the project")
WANDB_NAME: Final = _variable("WANDB_NAME", _OPERATOR, ("library",), "the name that W&B shows")
WANDB_NOTES: Final = _variable("WANDB_NOTES", _OPERATOR, ("trainer", "library"), "its notes")
WANDB_RUN_GROUP: Final = _variable("WANDB_RUN_GROUP", _OPERATOR, ("library",), "the group of runs")
WANDB_TAGS: Final = _variable("WANDB_TAGS", _OPERATOR, ("library",), "its tags, separated by commas")

VARIABLES: Final = {each.name: each for each in _VARIABLES}
