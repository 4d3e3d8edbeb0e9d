"""The base class of environments in which a command is the agent: one process per rollout, in a sandbox of its own."""

import asyncio
import json
import re
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import Field
from pydantic_core import to_json

from tinker_atropos.environments.base import Environment, Item
from tinker_atropos.environments.rollout.conversation import answer_text
from tinker_atropos.environments.rollout.prompt_tokens import Message
from tinker_atropos.environments.session_environment import SessionConfig, SessionEnvironment
from tinker_atropos.environments.sessions.rollout_session import RolloutSession
from tinker_atropos.errors import ConfigError
from tinker_atropos.sandboxes.local_pool import LocalSandboxes
from tinker_atropos.sandboxes.sandbox import (
    Command,
    CommandResult,
    Sandbox,
    SandboxError,
    SandboxLimits,
    SandboxLostError,
    SandboxPool,
)

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


def item_text(item: object) -> str:
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


__all__ = ["HarnessConfig", "HarnessEnvironment"]

T = TypeVar("T")

MOST_ROLLOUTS: Final = 512
"""Programs at once: each is waited for in a thread."""

PROGRAM_SHARE: Final = 0.95
"""Of rollout_seconds: its end is to be seen, and told, before the rollout's own."""

MAX_FILE_BYTES: Final = 1_000_000
CHECK_SECONDS: Final = 30.0
MISSING: Final = 'command -v "$1" >/dev/null || echo "$1"; shift; for path; do test -e "$path" || echo "$path"; done'
"""A shell's text: which of a program and some paths a sandbox does not have."""


class HarnessConfig(SessionConfig):
    """The fields of an environment whose agent is a command."""

    command: list[str] = Field(
        default=[],
        description="The agent: a program and its arguments, without a shell. {prompt}, {model}, {base_url} and "
        "{api_key} in an argument are replaced.",
    )
    score: Literal["answer", "result_file"] = Field(
        default="answer",
        description="What the reward is: that of the program's answer, by the task's scorer, or what the program "
        "writes into its result file.",
    )
    answer_from: str = Field(
        default="output",
        min_length=1,
        description="Where the answer is: output (all that the program prints), last_line (of it), last_message (of "
        "the policy), or the name of a file in the program's folder.",
    )
    result_file: str = Field(
        default="result.json",
        min_length=1,
        description="With score: result_file, where the program writes a number, or an object of numbers by name.",
    )
    env_vars: dict[str, str] = Field(
        default={}, description="More environment variables of the program, with the placeholders of command."
    )
    output_limit: int = Field(
        default=50_000, gt=0, description="Most bytes kept of what the program prints: the first and last half."
    )
    memory_mb: int = Field(default=4096, gt=0, description="Most memory of one rollout's processes together, in MiB.")
    max_processes: int = Field(default=128, gt=0, description="Most processes of one rollout at once.")


class HarnessEnvironment(SessionEnvironment[Item], Environment[Item], ABC):
    """A task for a program. An author writes `training_items`, `held_out_items` and `prompt`, gives `command` in
    `config_init`, and writes `score`, unless the program scores itself (`score: result_file`).
    """

    env_config_cls = HarnessConfig

    _pool: SandboxPool | None = None

    def score(self, item: Item, completion: str) -> float:
        """The reward of the program's answer, from 0 to 1."""
        raise NotImplementedError

    async def score_answer(self, item: Item, answer: str) -> float | None:  # type: ignore[override]  # see below
        """None if the program scores itself."""
        return await super().score_answer(item, answer) if self.config.score == "answer" else None

    async def setup(self) -> None:
        """Raises ConfigError for a command that cannot be started."""
        check_command(self.config.command)
        check_env_vars(self.config.env_vars)
        if self.config.score == "answer" and type(self).score is HarnessEnvironment.score:
            raise ConfigError(
                f"env.score is 'answer', and {type(self).__name__} has no method score: write score(item, completion), "
                f"or set score: result_file"
            )
        await super().setup()
        self._pool = self.sandboxes()
        await self._in_thread(self._check_command)

    async def close(self) -> None:
        if self._pool is not None:
            await self._in_thread(self._pool.close)
        await super().close()

    def sandboxes(self) -> SandboxPool:
        """Where programs run. They have to reach the session's port."""
        config = self.config
        return LocalSandboxes(SandboxLimits(memory_mb=config.memory_mb, processes=config.max_processes, network=True))

    async def play(self, item: Item, session: RolloutSession) -> float | Mapping[str, float]:
        """Raises ProgramFailedError, TimeoutError, and SandboxError if there is no sandbox to be had."""
        assert self._pool is not None, "setup comes first"
        start = Start(session, self.model_name, prompt_text(self.prompt(item)))
        leased = self._in_thread(self._pool.lease)
        try:
            sandbox = await asyncio.shield(leased)
            ended = await self._in_thread(sandbox.run, self._command(item, start))
            self._check_end(ended, session)
            if not session.turns:
                return 0.0  # a rollout in which nothing was sampled has failed, whatever it is worth
            if self.config.score == "result_file":
                content = await self._in_thread(self._file, sandbox, self.config.result_file)
                return rewards_of(content, self.config.result_file)
            answer = await self._in_thread(self._answer, ended, session, sandbox)
        finally:
            leased.add_done_callback(self._end)
        session.messages = [*self.prompt(item), {"role": "assistant", "content": answer}]
        reward = await self.score_answer(item, answer)
        assert reward is not None, "setup has checked that there is a scorer"
        return reward

    def _command(self, item: Item, start: Start) -> Command:
        """An item is shown only to a program that scores itself: many items have the right answer in them."""
        config = self.config
        shown = {"RL_RESULT_FILE": config.result_file, "RL_ITEM": item_text(item)}
        return Command(
            [start.filled(word) for word in config.command],
            timeout=PROGRAM_SHARE * config.rollout_seconds,
            env_vars=start.env_vars(config.env_vars, shown if config.score == "result_file" else {}),
            stdin=start.prompt,
            max_output=config.output_limit,
        )

    def _check_end(self, ended: CommandResult, session: RolloutSession) -> None:
        said = last_words(ended.output, session.api_key)
        if ended.timed_out:
            raise TimeoutError(f"the program had not ended after {self.config.rollout_seconds:g} s: {said}")
        if ended.exit_code:
            raise ProgramFailedError(f"the program ended with exit code {ended.exit_code}: {said}")

    def _answer(self, ended: CommandResult, session: RolloutSession, sandbox: Sandbox) -> str:
        match self.config.answer_from:
            case "output":
                return ended.output.strip()
            case "last_line":
                return last_line(ended.output)
            case "last_message":
                return answer_text(self.tokenizer, session.last_output)
        return self._file(sandbox, self.config.answer_from).decode(errors="replace").strip()

    def _file(self, sandbox: Sandbox, name: str) -> bytes:
        try:
            return sandbox.read_file(name, MAX_FILE_BYTES)
        except SandboxLostError:
            raise
        except SandboxError as error:
            raise ProgramFailedError(f"the program has left no {name}: {error}") from None

    def _check_command(self) -> None:
        """In a sandbox, which has the programs that rollouts have. Raises ConfigError."""
        assert self._pool is not None, "setup comes first"
        command = self.config.command
        paths = [word for word in command if word.startswith("/") and Path(word).exists()]
        path_variable = {name: text for name, text in self.config.env_vars.items() if name == "PATH"}
        try:
            sandbox = self._pool.lease()
        except SandboxError as error:
            raise ConfigError(f"no program can be started, since no sandbox can: {error}") from None
        try:
            asked = ["/bin/sh", "-c", MISSING, "sh", command[0], *paths]
            missing = sandbox.run(Command(asked, CHECK_SECONDS, path_variable)).output.split("\n")[0]
        finally:
            sandbox.close()
        if missing:
            raise ConfigError(_missing(missing))

    def _end(self, leased: "asyncio.Future[Sandbox]") -> None:
        """With everything that runs in it."""
        if not leased.cancelled() and leased.exception() is None:
            self._in_thread(leased.result().close)

    def _in_thread(self, work: Callable[..., T], *arguments: object) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(MOST_ROLLOUTS, thread_name_prefix="program")


def _missing(name: str) -> str:
    if Path(name).exists():
        return (
            f"env.command names {name!r}, which exists and yet cannot be used in a sandbox, where the temporary files "
            f"of others are hidden: put it into another folder, and make it executable if it is the program"
        )
    return (
        f"env.command begins with {name!r}, and there is no such program where the environment runs: install it there, "
        f"or give its absolute path"
    )
