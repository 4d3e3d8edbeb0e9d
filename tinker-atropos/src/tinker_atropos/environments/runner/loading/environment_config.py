"""From the run's config file and the environment's own `config_init` to the environment's arguments."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ServerBaseline
from pydantic import BaseModel, TypeAdapter, ValidationError

from rl_contract.bundled import resolve_tokenizer
from tinker_atropos.config.run_config import RunConfig, nearest
from tinker_atropos.errors import ConfigError
from tinker_atropos.settings import Settings


@dataclass(frozen=True, slots=True)
class Wiring:
    """Values that users may not set: they follow from where the process runs."""

    env: Mapping[str, Any]
    server: Mapping[str, Any]


def wired_to_run(run: RunConfig, settings: Settings) -> Wiring:
    """The run's trajectory API, and its trainer's inference server."""
    server = {
        "server_type": "sglang",
        "base_url": f"{settings.inference_url}/v1",
        "api_key": "x",  # an empty one crashes the openai client
        "model_name": run.base_model,
        "health_check": True,
    }
    return Wiring({"rollout_server_url": settings.api_url}, server)


POLICY_SECONDS: Final = 604_800
"""For an answer of the policy, if nobody sets it: the trainer knows how long its backend may take, or pause."""


def configure(
    config_init: tuple[Any, Any], run: RunConfig, wiring: Wiring, name: str, teachers: list[Any] | None = None
) -> tuple[Any, list[Any]]:
    """Overlay the config file on the environment's own values, and the wiring on both: the config and the servers.

    There is always a first server, the trained policy's: with none, atroposlib would look for four on fixed ports. The
    others are the author's (see `_others_of`), or, given a list, a teacher's. Raises ConfigError naming the field.
    """
    env_config, server_configs = config_init
    given = run.env.model_dump(exclude_unset=True)
    if env_config.steps_per_eval > 0:  # the trainer saves what is evaluated, at the steps that it knows of
        given = {"steps_per_eval": run.env.steps_per_eval, **given}
    tokenizer = resolve_tokenizer(run.env.tokenizer_name)
    wired_env = {
        **wiring.env,
        "tokenizer_name": tokenizer,
        "use_wandb": True,  # `wandb` is the relay here: without this nothing would be logged at all
        "wandb_name": given.get("wandb_name") or env_config.wandb_name or name,
    }
    if "item_seed" in type(env_config).model_fields and given.get("item_seed", env_config.item_seed) is None:
        wired_env["item_seed"] = run.tinker.seed
    wired_server = {**wiring.server, "tokenizer_name": tokenizer}
    own = server_configs if isinstance(server_configs, list) else [server_configs]
    first, *others = run.openai or [{}]
    policy = _as_server(own[0] if own else None)
    if "timeout" not in policy.model_fields_set:
        policy = policy.model_copy(update={"timeout": POLICY_SECONDS})
    return overlay(env_config, given, wired_env, "env"), [
        overlay(policy, first, wired_server, "openai.0"),
        *_other_servers(_others_of(own) if teachers is None else teachers, others),
    ]


def seed_is_open(own: BaseModel, run: RunConfig) -> bool:
    """Whether an environment that draws its items itself has a seed for that, and neither it nor the run has set it."""
    is_set = "seed" in own.model_fields_set or "seed" in run.env.model_dump(exclude_unset=True)
    return not is_set and isinstance(getattr(own, "seed", ""), int | None)


def overlay(base: BaseModel, given: Mapping[str, Any], wired: Mapping[str, Any], section: str) -> Any:
    """A model of base's class: base's values, overridden by the given ones (strictly checked), then the wired ones."""
    fields = type(base).model_fields
    values = {name: getattr(base, name) for name in fields}
    for name, value in given.items():
        if name not in fields:
            known = ", ".join(fields)
            raise ConfigError(
                f"{section}.{name} is not a field of this environment{nearest(name, fields)} (known: {known})"
            )
        values[name] = _checked(f"{section}.{name}", value, fields[name].annotation, fields[name].metadata)
    try:
        return type(base)(**{**values, **wired})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join([section, *map(str, first["loc"])])
        raise ConfigError(f"{field} is {first['input']!r}: {first['msg']}") from None


def _checked(field: str, value: Any, annotation: Any, metadata: list[Any]) -> Any:
    """The value converted to the field's type. JSON rules: an enum's value may be a string, but "8" is not a number.
    YAML dates are strings, and integers have no limit.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[annotation, *metadata] if metadata else annotation)
    try:
        return adapter.validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise ConfigError(f"{field} is {value!r}: {message[0].lower()}{message[1:]}") from None


def _others_of(own: list[Any]) -> list[Any]:
    """Servers of other models. Further servers of the first one's model are left out: they are replicas of the policy,
    which has one server here.
    """
    return [each for each in own[1:] if each.model_name != own[0].model_name]


def _other_servers(own: list[Any], given: list[dict[str, Any]]) -> list[Any]:
    """Those of the environment, with the config file's values, and those that only the file has."""
    servers = [_as_server(each) for each in own]
    servers += [APIServerConfig() for _ in given[len(servers) :]]
    for index, values in enumerate(given):
        section = f"openai.{index + 1}"
        if values.get("api_key"):
            raise ConfigError(
                f"{section}.api_key: a config file must not hold a key; leave it out, and let config_init read an "
                f"environment variable"
            )
        servers[index] = overlay(servers[index], values, {}, section)
    return servers


def _as_server(given: Any) -> Any:
    """One of the environment's own server settings, which may be only the baseline, or nothing."""
    if isinstance(given, APIServerConfig):
        return given
    return APIServerConfig(**given.model_dump()) if isinstance(given, ServerBaseline) else APIServerConfig()
