"""Where the OpenEnv server is and how much it may be asked: the environment variable RL_OPENENV."""

import os
from collections.abc import Mapping
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from rl_contract.env_vars import RL_OPENENV
from tinker_atropos.errors import ConfigError

EXAMPLE: Final = '{"url": "http://127.0.0.1:8000"}'
MAX_SEEDS: Final = 2**31
"""Servers hand a seed to generators that take 32 bits."""

Seeds = Annotated[int, Field(ge=1, lt=MAX_SEEDS)]


class OpenEnvSettings(BaseModel):
    """The JSON of RL_OPENENV. Held-out seeds are the first ones, from 0; training seeds follow them.

    `timeout_seconds` bounds each answer of the server, and the wait for a free session. `max_sessions` is how many
    sessions are open at once, which the server must allow. `max_frame_bytes` bounds what it may send at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel, allow_inf_nan=False)

    url: str
    max_sessions: int = Field(default=16, ge=1, le=10_000)
    timeout_seconds: float = Field(default=60.0, gt=0, le=86_400)
    training_seeds: Seeds = 100_000
    held_out_seeds: Seeds = 100
    max_frame_bytes: int = Field(default=2**20, ge=1024, le=2**30)

    @property
    def http_url(self) -> str:
        return self.url.rstrip("/")

    @property
    def websocket_url(self) -> str:
        """`http` becomes `ws`, and `https` `wss`."""
        return f"ws{self.http_url.removeprefix('http')}/ws"

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @field_validator("url")
    @classmethod
    def _reachable(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.username or parts.password:
            raise ValueError("must not hold a user name or a password")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("must look like http://127.0.0.1:8000")
        _ = parts.port  # raises ValueError if it is not one
        return url

    @model_validator(mode="after")
    def _few_enough(self) -> Self:
        if self.held_out_seeds + self.training_seeds > MAX_SEEDS:
            raise ValueError(f"heldOutSeeds and trainingSeeds together must be at most {MAX_SEEDS}")
        return self


def load_openenv_settings(environ: Mapping[str, str] = os.environ) -> OpenEnvSettings:
    """Raises ConfigError naming the field, its value and what is allowed."""
    text = environ.get(RL_OPENENV, "")
    if not text.strip():
        raise ConfigError(f"{RL_OPENENV} is not set; it says where the OpenEnv server is, for example {EXAMPLE}")
    try:
        return OpenEnvSettings.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    """About the first fault. A `url` that may hold a password is not repeated."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid" or (not first["loc"] and first["type"] != "value_error"):
        return f"{RL_OPENENV} must be a JSON object, for example {EXAMPLE}: {message}"
    field = ".".join([RL_OPENENV, *map(str, first["loc"])])
    if first["type"] == "missing":
        return f"{field} is missing: it is the address of the OpenEnv server, for example {EXAMPLE}"
    if first["type"] == "extra_forbidden":
        known = ", ".join(each.alias or name for name, each in OpenEnvSettings.model_fields.items())
        return f"{field} is not a setting (known: {known})"
    if not first["loc"] or "@" in str(first["input"]):
        return f"{field}: {message}"
    return f"{field} is {first['input']!r}: {message[0].lower()}{message[1:]}"
