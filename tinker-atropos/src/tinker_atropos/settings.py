"""What a container reads from its environment variables. Addresses are never in the config file.

The address a server binds is the address its clients use: `RL_API_URL` and `RL_INFERENCE_URL` are read by both
sides, so they cannot disagree.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from rl_contract import env_vars as variables
from rl_contract.prices import TokenPrices
from rl_contract.processes import API_URL, INFERENCE_URL, OPS_PORTS
from rl_contract.trainer_messages import BestCheckpoint
from tinker_atropos.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: parsed from the URL that its clients use. `path` begins with a slash, or is empty:
    clients of other pods must know it (`serving.below`).
    """

    host: str
    port: int
    path: str = ""

    @classmethod
    def of_url(cls, variable: str, url: str) -> "Address":
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme != "http" or not parts.hostname or port is None:
            raise ConfigError(f"{variable} is {url!r}; it must look like {API_URL}")
        return cls(parts.hostname, port, parts.path.rstrip("/"))

    def __str__(self) -> str:
        """For messages: without the path."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Parent:
    """The run that the weights of `start_from` come from, for display: its name, its step, its W&B run."""

    run: str | None = None
    step: int | None = None
    wandb_url: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedCheckpoint:
    """The checkpoint that a run is known to have saved last: an attempt that continues the run must find it."""

    step: int
    path: str


@dataclass(frozen=True, slots=True)
class SandboxService:
    """The run's sandboxes in pods: a connection to `host` and `port` leads to any of them. `share` is how many of them
    one environment process holds at most.
    """

    host: str
    port: int
    share: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What earlier attempts of the run have cost, for so many steps."""

    amount: float = 0.0
    steps: int = 0


Read = Callable[[str, str], Any]
"""From a variable's name and what it holds to a setting. Raises ConfigError, which names both."""


def _text(_name: str, value: str) -> str:
    return value


def _url(_name: str, value: str) -> str:
    return value.rstrip("/")


def _integer(name: str, value: str) -> int:
    if not value.isdecimal():
        raise ConfigError(f"{name} is {value!r}; it must be an integer")
    return int(value)


def _switch(name: str, value: str) -> bool:
    if value not in ("0", "1"):
        raise ConfigError(f"{name} is {value!r}; it must be 1, or 0 or empty for no")
    return value == "1"


def _amount(name: str, value: str) -> float:
    try:
        amount = float(value)
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise ConfigError(f"{name} is {value!r}; it must be an amount of money of at least 0")
    return amount


def _best(name: str, value: str) -> BestCheckpoint:
    try:
        return BestCheckpoint.model_validate_json(value)
    except ValidationError as error:
        raise ConfigError(f"{name} is {value!r}; it must be status.best as JSON: {error!r}") from None


def _prices(name: str, value: str) -> TokenPrices:
    try:
        return TokenPrices.from_json(value)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "all of it"
        raise ConfigError(
            f"{name} is {value!r}; it must be JSON with prefill, sample and train, each the price of a million "
            f"tokens, and currency: {where}: {fault['msg']}"
        ) from None


def _of(variable: str, default: Any, read: Read = _text) -> Any:
    """The field that this variable sets."""
    return field(default=default, metadata={"variable": variable, "read": read})


@dataclass(frozen=True)
class Settings:
    """The process's settings, read once at startup.

    `rollouts_dir` is the folder of rollout files; None: one beside the ledger. `rollouts_url` is where they are put as
    well, to outlive the pod: `s3://BUCKET/FOLDER`; the AWS_* variables beside it are read by the store's library.

    `config_sha256` and `source_sha256` are the hashes of the config file and of an own environment's files that the run
    was started with; None: any will do.

    `result_file` is the container's termination message: the trainer's result, or why another process failed; `uid` and
    `attempt` mark checkpoints. `recorded` is the checkpoint to continue from; if the backend has neither it nor a newer
    one, the attempt fails, or with `restart_if_lost` continues from an older one, or from the beginning. `best` holds
    the best weights of earlier attempts. With `remote_environments`, environments run in other pods and are replaced
    there when they die: the run fails only after none has been alive for `environment_grace` seconds.
    `environment_index` numbers them; 0 evaluates. None is the one in the run's own pod: it evaluates too, and is not
    replaced. `sandboxes` is None if the run asks for none in pods. `grace_seconds` is the time from SIGTERM to
    SIGKILL, and `wandb_close_seconds` what W&B may take of it (trainer/stop_schedule.py). `prices` None: what the run
    costs is not known; `budget` is what it may cost in all, earlier attempts (`spent`) included.
    """

    api_url: str = _of(variables.RL_API_URL, API_URL, _url)
    inference_url: str = _of(variables.RL_INFERENCE_URL, INFERENCE_URL, _url)
    ops_host: str = _of(variables.RL_OPS_HOST, "0.0.0.0")  # noqa: S104 -- the kubelet and the operator reach it
    ops_port: int = _of(variables.RL_OPS_PORT, 0, _integer)
    ops_token: str | None = field(
        default=None, repr=False, metadata={"variable": variables.RL_OPS_TOKEN, "read": _text}
    )
    run_name: str = _of(variables.RL_RUN_NAME, "run")
    run_namespace: str = _of(variables.RL_RUN_NAMESPACE, "default")
    run_uid: str = _of(variables.RL_RUN_UID, "")
    attempt: int = _of(variables.RL_ATTEMPT, 1, _integer)
    recorded: RecordedCheckpoint | None = None
    restart_if_lost: bool = _of(variables.RL_RESTART_IF_CHECKPOINT_LOST, False, _switch)
    best: BestCheckpoint | None = _of(variables.RL_BEST_CHECKPOINT, None, _best)  # noqa: RUF009 -- it is a field
    prices: TokenPrices | None = _of(variables.RL_PRICES, None, _prices)  # noqa: RUF009 -- likewise
    budget: float | None = _of(variables.RL_BUDGET, None, _amount)
    spent: Spent = Spent()
    start_from: str | None = _of(variables.RL_START_FROM, None)
    start_from_optimizer: bool = _of(variables.RL_START_FROM_OPTIMIZER, False, _switch)
    start_from_data: bool = _of(variables.RL_START_FROM_DATA, False, _switch)
    parent: Parent = Parent()
    remote_environments: bool = _of(variables.RL_REMOTE_ENVIRONMENTS, False, _switch)
    environment_grace: int = _of(variables.RL_ENVIRONMENT_GRACE, 300, _integer)
    environment_index: int | None = _of(variables.RL_ENVIRONMENT_INDEX, None, _integer)
    sandboxes: SandboxService | None = None
    rollouts_dir: str | None = _of(variables.RL_ROLLOUTS_DIR, None)
    rollouts_url: str | None = _of(variables.RL_ROLLOUTS_URL, None)
    result_file: str | None = _of(variables.RL_RESULT_FILE, None)
    config_sha256: str | None = _of(variables.RL_CONFIG_SHA256, None)
    source_sha256: str | None = _of(variables.RL_SOURCE_SHA256, None)
    wandb_run_id: str | None = _of(variables.RL_WANDB_RUN_ID, None)
    grace_seconds: int = _of(variables.RL_GRACE_SECONDS, 25, _integer)
    wandb_close_seconds: int = _of(variables.RL_WANDB_CLOSE_SECONDS, 4, _integer)

    @property
    def api_address(self) -> Address:
        return Address.of_url(variables.RL_API_URL, self.api_url)

    @property
    def inference_address(self) -> Address:
        return Address.of_url(variables.RL_INFERENCE_URL, self.inference_url)


def load_settings(container: str, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the `RL_*` variables of one container (`api`, `trainer` or `environment`); an empty one is an absent one."""

    def value(name: str, read: Read, default: Any = None) -> Any:
        return read(name, environ[name]) if environ.get(name) else default

    own = {each.name: each.metadata for each in fields(Settings) if each.metadata}
    found = {name: value(how["variable"], how["read"], MISSING) for name, how in own.items()}
    step = value(variables.RL_CHECKPOINT_STEP, _integer)
    path = value(variables.RL_CHECKPOINT_PATH, _text)
    return Settings(
        **{"ops_port": OPS_PORTS[container], **{name: each for name, each in found.items() if each is not MISSING}},
        recorded=RecordedCheckpoint(step, path) if step is not None and path else None,
        spent=Spent(value(variables.RL_SPENT, _amount, 0.0), value(variables.RL_SPENT_STEPS, _integer, 0)),
        parent=Parent(
            value(variables.RL_PARENT_RUN, _text),
            value(variables.RL_PARENT_STEP, _integer),
            value(variables.RL_PARENT_WANDB_URL, _text),
        ),
        sandboxes=_sandboxes(
            value(variables.RL_SANDBOX_HOST, _text),
            value(variables.RL_SANDBOX_PORT, _integer, 0),
            value(variables.RL_SANDBOX_SHARE, _integer, 0),
        ),
    )


def _sandboxes(host: str | None, port: int, share: int) -> SandboxService | None:
    if host is None:
        return None
    if not (0 < port < 65536 and share > 0):
        raise ConfigError(
            f"RL_SANDBOX_PORT is {port} and RL_SANDBOX_SHARE is {share}; with RL_SANDBOX_HOST they must be a port and "
            f"a number of sandboxes from 1"
        )
    return SandboxService(host, port, share)
