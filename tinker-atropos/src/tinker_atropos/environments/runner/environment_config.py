"""From the run's config file and the environment's own `config_init` to the environment's arguments."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ServerBaseline
from pydantic import BaseModel, TypeAdapter, ValidationError

from tinker_atropos.bundled import resolve_tokenizer
from tinker_atropos.config import RunConfig, nearest
from tinker_atropos.errors import ConfigError
from tinker_atropos.settings import Settings


@dataclass(frozen=True, slots=True)
class EnvironmentArguments:
    """The arguments of atroposlib's BaseEnv: its config, and the one server that it samples from."""

    config: Any
    servers: list[Any]


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


def configure(config_init: tuple[Any, Any], run: RunConfig, wiring: Wiring, name: str) -> EnvironmentArguments:
    """Overlay the config file on the environment's own values, and the wiring on both.

    The result always has exactly one server: with none, atroposlib would look for four on fixed ports, and with two it
    would ignore the config file. Raises ConfigError naming the field.
    """
    env_config, server_configs = config_init
    given = run.env.model_dump(exclude_unset=True)
    tokenizer = resolve_tokenizer(run.env.tokenizer_name)
    wired_env = {
        **wiring.env,
        "tokenizer_name": tokenizer,
        "use_wandb": True,  # `wandb` is the relay here: without this nothing would be logged at all
        "wandb_name": given.get("wandb_name") or env_config.wandb_name or name,
    }
    wired_server = {**wiring.server, "tokenizer_name": tokenizer}
    given_server = run.openai[0] if run.openai else {}
    return EnvironmentArguments(
        config=overlay(env_config, given, wired_env, "env"),
        servers=[overlay(_first_server(server_configs), given_server, wired_server, "openai.0")],
    )


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


def _first_server(server_configs: Any) -> Any:
    """The environment's own server settings: it may give a list, a single config, or only the baseline."""
    first = server_configs[0] if isinstance(server_configs, list) and server_configs else server_configs
    if isinstance(first, APIServerConfig):
        return first
    if isinstance(first, ServerBaseline):
        return APIServerConfig(**first.model_dump())
    return APIServerConfig()
