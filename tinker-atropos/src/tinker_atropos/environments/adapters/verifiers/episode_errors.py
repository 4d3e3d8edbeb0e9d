"""Why an episode has no score, as a failed rollout: verifiers records errors of episodes instead of raising them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tinker_atropos.environments.rollout.failures import MAX_MESSAGE
from tinker_atropos.environments.rollout.rollouts import FailedRollout, FailureKind

TRANSPORT: Final = frozenset({"InterceptionError", "TunnelError"})
FRAME: Final = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
ANSWER: Final = re.compile(r"'message': (['\"])(.*?)\1, 'type'")
"""What the inference server said, in the message of an openai client."""

NOT_ITS_OWN: Final = re.compile(
    r"site-packages/(verifiers|renderers|aiohttp|openai|httpx|pydantic)/|/lib/python[^/]+/(?!site-)"
)
"""Files of Python, and of what a taskset stands on."""


def failed_episode(episode: Any, tokens: int) -> FailedRollout:
    """`tokens` were sampled in it."""
    errors = list(_errors(episode))
    if not errors:
        return FailedRollout("raised", "the episode ended without a score, and without an error", tokens)
    last = errors[-1]
    said = ANSWER.search(last.message)
    message = said.group(2) if said else next(iter(last.message.strip().splitlines()), "")
    place = _place(last.traceback or "")
    return FailedRollout(
        _kind(episode, last), f"{last.type}: {message[:MAX_MESSAGE]}{f' ({place})' if place else ''}", tokens
    )


def _errors(episode: Any) -> Iterator[Any]:
    """Those of the environment first: those of its agents are the cause."""
    yield from episode.errors
    for trace in episode.traces:
        if not trace.ok:
            yield from trace.errors


def _kind(episode: Any, error: Any) -> FailureKind:
    if getattr(episode, "is_timeout", False) or error.type == "TimeoutError" or "timed out" in error.message:
        return "timeout"
    if error.type in TRANSPORT or (error.type == "ProviderError" and (error.status_code or 0) >= 500):
        return "transport"
    return "raised"


def _place(traceback: str) -> str:
    """The innermost line of the taskset's own files."""
    frames = [frame for frame in FRAME.findall(traceback) if not NOT_ITS_OWN.search(frame[0])]
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f"{Path(file).name}, line {line}, in {function}"
