"""What a container reads from its environment variables. Addresses are never in the config file.

The address a server binds is the address its clients use: `RL_API_URL` and `RL_INFERENCE_URL` are read by both
sides, so they cannot disagree.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, overload
from urllib.parse import urlsplit

from pydantic import ValidationError

from rl_contract.env_vars import (
    RL_API_URL,
    RL_ATTEMPT,
    RL_BEST_CHECKPOINT,
    RL_BUDGET,
    RL_CHECKPOINT_PATH,
    RL_CHECKPOINT_STEP,
    RL_ENVIRONMENT_GRACE,
    RL_ENVIRONMENT_INDEX,
    RL_INFERENCE_URL,
    RL_OPS_HOST,
    RL_OPS_PORT,
    RL_PARENT_RUN,
    RL_PARENT_STEP,
    RL_PARENT_WANDB_URL,
    RL_PRICES,
    RL_REMOTE_ENVIRONMENTS,
    RL_RESTART_IF_CHECKPOINT_LOST,
    RL_RESULT_FILE,
    RL_ROLLOUTS_DIR,
    RL_ROLLOUTS_URL,
    RL_RUN_NAME,
    RL_RUN_NAMESPACE,
    RL_RUN_UID,
    RL_SANDBOX_HOST,
    RL_SANDBOX_PORT,
    RL_SANDBOX_SHARE,
    RL_SPENT,
    RL_SPENT_STEPS,
    RL_START_FROM,
    RL_START_FROM_OPTIMIZER,
    RL_WANDB_CLOSE_SECONDS,
    RL_WANDB_RUN_ID,
)
from rl_contract.prices import TokenPrices
from rl_contract.processes import API_URL, INFERENCE_URL, OPS_PORTS
from rl_contract.trainer_messages import BestCheckpoint
from tinker_atropos.errors import ConfigError

ONE_OR_NOTHING = {"": False, "0": False, "1": True}


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


@dataclass(frozen=True)
class Settings:
    """The process's settings, read once at startup.

    `rollouts_dir` is the folder of rollout files; None: one beside the ledger. `rollouts_url` is where they are put as
    well, to outlive the pod: `s3://BUCKET/FOLDER`; the AWS_* variables beside it are read by the store's library.

    `result_file` is the container's termination message: the trainer's result, or why another process failed; `uid` and
    `attempt` mark checkpoints. `recorded` is the checkpoint to continue from; if the backend has neither it nor a newer
    one, the attempt fails, or with `restart_if_lost` continues from an older one, or from the beginning. `best` holds
    the best weights of earlier attempts. With `remote_environments`, environments run in other pods and are replaced
    there when they die: the run fails only after none has been alive for `environment_grace` seconds.
    `environment_index` numbers them; 0 evaluates. None is the one in the run's own pod: it evaluates too, and is not
    replaced. `sandboxes` is None if the run asks for none in pods. `wandb_close_seconds` is how long W&B may take at
    the end: by default what is left of the 25 s of a stop if everything else takes its full time
    (trainer/attempt_end.py). `prices` None: what the run costs is not known; `budget` is what it may cost in all,
    earlier attempts (`spent`) included.
    """

    api_url: str = API_URL
    inference_url: str = INFERENCE_URL
    ops_host: str = "0.0.0.0"  # noqa: S104 -- the kubelet and the operator reach the ops port from outside the pod
    ops_port: int = 0
    run_name: str = "run"
    run_namespace: str = "default"
    run_uid: str = ""
    attempt: int = 1
    recorded: RecordedCheckpoint | None = None
    restart_if_lost: bool = False
    best: BestCheckpoint | None = None
    prices: TokenPrices | None = None
    budget: float | None = None
    spent: Spent = Spent()
    start_from: str | None = None
    start_from_optimizer: bool = False
    parent: Parent = Parent()
    remote_environments: bool = False
    environment_grace: int = 300
    environment_index: int | None = None
    sandboxes: SandboxService | None = None
    rollouts_dir: str | None = None
    rollouts_url: str | None = None
    result_file: str | None = None
    wandb_run_id: str | None = None
    wandb_close_seconds: int = 4

    @property
    def api_address(self) -> Address:
        return Address.of_url(RL_API_URL, self.api_url)

    @property
    def inference_address(self) -> Address:
        return Address.of_url(RL_INFERENCE_URL, self.inference_url)


def load_settings(container: str, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the `RL_*` variables of one container (`api`, `trainer` or `environment`)."""
    return Settings(
        api_url=environ.get(RL_API_URL, API_URL).rstrip("/"),
        inference_url=environ.get(RL_INFERENCE_URL, INFERENCE_URL).rstrip("/"),
        ops_host=environ.get(RL_OPS_HOST, Settings.ops_host),
        ops_port=_integer(environ, RL_OPS_PORT, OPS_PORTS[container]),
        run_name=environ.get(RL_RUN_NAME, Settings.run_name),
        run_namespace=environ.get(RL_RUN_NAMESPACE, Settings.run_namespace),
        run_uid=environ.get(RL_RUN_UID, Settings.run_uid),
        attempt=_integer(environ, RL_ATTEMPT, Settings.attempt),
        recorded=_recorded(environ),
        restart_if_lost=_switch(environ, RL_RESTART_IF_CHECKPOINT_LOST),
        best=_best(environ),
        prices=_prices(environ),
        budget=_number(environ, RL_BUDGET),
        spent=Spent(_number(environ, RL_SPENT) or 0.0, _integer(environ, RL_SPENT_STEPS, 0)),
        start_from=environ.get(RL_START_FROM) or None,
        start_from_optimizer=_switch(environ, RL_START_FROM_OPTIMIZER),
        parent=_parent(environ),
        remote_environments=_switch(environ, RL_REMOTE_ENVIRONMENTS),
        environment_grace=_integer(environ, RL_ENVIRONMENT_GRACE, Settings.environment_grace),
        environment_index=_integer(environ, RL_ENVIRONMENT_INDEX, Settings.environment_index),
        sandboxes=_sandboxes(environ),
        rollouts_dir=environ.get(RL_ROLLOUTS_DIR) or None,
        rollouts_url=environ.get(RL_ROLLOUTS_URL) or None,
        result_file=environ.get(RL_RESULT_FILE) or None,
        wandb_run_id=environ.get(RL_WANDB_RUN_ID) or None,
        wandb_close_seconds=_integer(environ, RL_WANDB_CLOSE_SECONDS, Settings.wandb_close_seconds),
    )


def _recorded(environ: Mapping[str, str]) -> RecordedCheckpoint | None:
    step, path = _integer(environ, RL_CHECKPOINT_STEP, None), environ.get(RL_CHECKPOINT_PATH)
    return RecordedCheckpoint(step, path) if step is not None and path else None


def _best(environ: Mapping[str, str]) -> BestCheckpoint | None:
    value = environ.get(RL_BEST_CHECKPOINT)
    try:
        return BestCheckpoint.model_validate_json(value) if value else None
    except ValidationError as error:
        raise ConfigError(f"RL_BEST_CHECKPOINT is {value!r}; it must be status.best as JSON: {error!r}") from None


def _prices(environ: Mapping[str, str]) -> TokenPrices | None:
    value = environ.get(RL_PRICES)
    try:
        return TokenPrices.from_json(value) if value else None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "all of it"
        raise ConfigError(
            f"RL_PRICES is {value!r}; it must be JSON with prefill, sample and train, each the price of a million "
            f"tokens, and currency: {where}: {fault['msg']}"
        ) from None


def _number(environ: Mapping[str, str], name: str) -> float | None:
    value = environ.get(name)
    try:
        return _amount(value) if value else None
    except ValueError:
        raise ConfigError(f"{name} is {value!r}; it must be an amount of money of at least 0") from None


def _amount(value: Any) -> float:
    """Raises ValueError or TypeError."""
    amount = float(value)
    if not 0 <= amount < math.inf:
        raise ValueError(f"{value!r} is not a number of at least 0")
    return amount


def _parent(environ: Mapping[str, str]) -> Parent:
    return Parent(
        run=environ.get(RL_PARENT_RUN) or None,
        step=_integer(environ, RL_PARENT_STEP, None),
        wandb_url=environ.get(RL_PARENT_WANDB_URL) or None,
    )


def _sandboxes(environ: Mapping[str, str]) -> SandboxService | None:
    host = environ.get(RL_SANDBOX_HOST)
    if not host:
        return None
    port, share = _integer(environ, RL_SANDBOX_PORT, 0), _integer(environ, RL_SANDBOX_SHARE, 0)
    if not (0 < port < 65536 and share > 0):
        raise ConfigError(
            f"RL_SANDBOX_PORT is {port} and RL_SANDBOX_SHARE is {share}; with RL_SANDBOX_HOST they must be a port and "
            f"a number of sandboxes from 1"
        )
    return SandboxService(host, port, share)


def _switch(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "")
    if value not in ONE_OR_NOTHING:
        raise ConfigError(f"{name} is {value!r}; it must be 1, or 0 or empty for no")
    return ONE_OR_NOTHING[value]


@overload
def _integer(environ: Mapping[str, str], name: str, default: int) -> int: ...


@overload
def _integer(environ: Mapping[str, str], name: str, default: None) -> int | None: ...


def _integer(environ: Mapping[str, str], name: str, default: int | None) -> int | None:
    value = environ.get(name, "")
    if not value:
        return default
    if not value.isdecimal():
        raise ConfigError(f"{name} is {value!r}; it must be an integer")
    return int(value)
