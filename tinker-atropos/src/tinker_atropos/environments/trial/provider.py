"""One model of an OpenAI-compatible provider, and the parameters of its requests. Does not import atroposlib."""

import os
from collections.abc import MutableMapping
from dataclasses import dataclass, field

from rl_contract.env_vars import RL_INFERENCE_API_KEY, RL_INFERENCE_URL
from tinker_atropos.errors import ConfigError, without_key


@dataclass(frozen=True, slots=True)
class Provider:
    """The endpoint of a model. The key is not in its `repr`."""

    url: str
    model: str
    key: str = field(repr=False)

    @classmethod
    def take(cls, model: str, environ: MutableMapping[str, str] = os.environ) -> "Provider":
        """From environment variables; the key is removed from them, so no child process of the environment inherits it.
        Raises ConfigError.
        """
        if not model:
            raise ConfigError("--model is missing: it names the model, as the provider calls it")
        url = environ.get(RL_INFERENCE_URL, "").rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"{RL_INFERENCE_URL} is {url!r}; it must be the base URL of an OpenAI-compatible API, like "
                f"https://openrouter.ai/api/v1"
            )
        return cls(url, model, environ.pop(RL_INFERENCE_API_KEY, ""))

    def server_fields(self) -> dict[str, object]:
        return {
            "server_type": "openai",
            "base_url": self.url,
            "api_key": self.key or "none",  # an empty one crashes the openai client
            "model_name": self.model,
            "health_check": False,
        }

    def redact(self, text: str) -> str:
        """The text without the key: an environment may print it, too."""
        return without_key(text, self.key)


@dataclass(frozen=True, slots=True)
class Wishes:
    """Parameters that override the environment's in every request; None: the environment's."""

    max_tokens: int | None = None
    temperature: float | None = None

    def to_request(self) -> dict[str, object]:
        given = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        return {name: value for name, value in given.items() if value is not None}
