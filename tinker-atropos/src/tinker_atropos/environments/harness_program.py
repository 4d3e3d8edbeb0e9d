"""The program of a harness: what it is started with, and what is read from what it leaves behind."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json

from tinker_atropos.environments.rollout.prompt_tokens import Message
from tinker_atropos.environments.sessions.rollout_session import RolloutSession
from tinker_atropos.errors import ConfigError

OF_THE_SESSION: Final = (
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "OPENAI_API_KEY",
    "OPENAI_MODEL",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_KEY",
)
OUR_PREFIX: Final = "RL_"

MAX_VARIABLE_BYTES: Final = 100_000
"""Linux takes no variable of more than 128 KiB: a longer prompt or item is not given as one."""

LAST_LINES: Final = 3
LAST_CHARACTERS: Final = 200
SHOWN: Final = 80

_PLACEHOLDER: Final = re.compile(r"\{(prompt|model|base_url|api_key)\}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ProgramFailedError(Exception):
    """The program did not do what a rollout needs."""


@dataclass(frozen=True, slots=True)
class Start:
    """What one rollout's program is told."""

    session: RolloutSession
    model: str
    prompt: str

    def filled(self, text: str) -> str:
        """With the placeholders replaced; all other braces stay as they are."""
        values = {
            "prompt": self.prompt,
            "model": self.model,
            "base_url": self.session.base_url,
            "api_key": self.session.api_key,
        }
        return _PLACEHOLDER.sub(lambda found: values[found[1]], text)

    def env_vars(self, given: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
        """Those of the session and `more`, which are ours, and those of the config."""
        ours = {"OPENAI_MODEL": self.model, "RL_MODEL": self.model, "RL_PROMPT": self.prompt, **more}
        short = {name: text for name, text in ours.items() if len(text.encode()) <= MAX_VARIABLE_BYTES}
        return {**{name: self.filled(text) for name, text in given.items()}, **self.session.env_vars, **short}


def prompt_text(messages: Sequence[Message]) -> str:
    """For programs, which have system prompts of their own: the messages' texts, one after the other."""
    return "\n\n".join(str(message["content"]) for message in messages)


def item_text(item: Any) -> str:
    """As JSON; of what has no form in JSON, Python's."""
    return to_json(item, fallback=repr, inf_nan_mode="constants").decode()


def check_env_vars(names: Mapping[str, str]) -> None:
    """Raises ConfigError for a name that is ours, or none."""
    for name in names:
        if name in OF_THE_SESSION or name.startswith(OUR_PREFIX):
            raise ConfigError(
                f"env.env_vars names {name!r}, which each rollout gets a value of its own for: leave it out, or give "
                f"another variable the value {{base_url}}, {{api_key}}, {{model}} or {{prompt}}"
            )
        if not _VARIABLE.fullmatch(name):
            raise ConfigError(f"env.env_vars names {name!r}: a variable has letters, digits and '_' only")


def check_command(command: Sequence[str]) -> None:
    """Raises ConfigError for one that cannot be started, as far as its words tell."""
    if not command or not command[0]:
        raise ConfigError(
            "env.command is empty: give a program and its arguments, such as [python, /opt/agent.py, '{prompt}']"
        )
    for at, word in enumerate(command):
        if word.startswith(("./", "../")) or (at == 1 and word.endswith(".py") and not word.startswith("/")):
            raise ConfigError(
                f"env.command names {word!r}, and a program starts in an empty folder of its own: give an absolute "
                f"path. With --local, a file beside the run's file is found; a file of your own environment gives "
                f"its scripts' paths itself (HarnessEnvironment)"
            )


def last_words(output: str, secret: str) -> str:
    """The end of an output in one line, for a message that people read."""
    lines = [line.strip() for line in output.replace(secret, "(the rollout's key)").splitlines() if line.strip()]
    return " | ".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:] or "it printed nothing"


def last_line(output: str) -> str:
    """The last one that is not empty."""
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")


def rewards_of(content: bytes, name: str) -> float | dict[str, float]:
    """What a result file says. Raises ProgramFailedError."""
    try:
        said = json.loads(content)
    except ValueError:  # of JSON, and of bytes that are not UTF-8
        said = None
    if isinstance(said, int | float):
        return float(said)
    if isinstance(said, dict) and said and all(isinstance(each, int | float) for each in said.values()):
        return {reward: float(each) for reward, each in said.items()}
    shown = content[:SHOWN].decode(errors="replace")
    raise ProgramFailedError(f"{name} has {shown!r}: it must be a JSON number, or an object of numbers by name")
