"""An episode of verifiers -> what is trained: the token ids that were sampled, with the logprobs of the sampler.

Each trained trace of an episode, that is each run of an agent, is a rollout of its own, scored by its own reward. Its
branches are the rollout's sequences. What an earlier branch has trained is context in the later ones. An episode
without a score is a failed rollout: verifiers records errors of episodes instead of raising them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from rl_contract.scored_group import PROMPT_LOGPROB, PROMPT_MASK
from tinker_atropos.environments.rollout.conversation import SampledSequence
from tinker_atropos.environments.rollout.failures import MAX_MESSAGE
from tinker_atropos.environments.rollout.rollouts import FailedRollout, FailureKind, Rollout

Seat: TypeAlias = tuple[str, int]
"""An agent's name, and which of its runs in the episode it is, from 0."""

SMALLEST_GROUP: Final = 2
"""A rollout that is compared with no other teaches nothing."""


NO_ROOM: Final = (
    "a prompt of the episode leaves no room for an answer: raise env.max_token_length, or shorten the tasks"
)
NOT_A_WORD: Final = "no agent that is trained has said anything in this episode"


@dataclass(frozen=True, slots=True)
class PlayedEpisode(Rollout):
    """To the base class an episode is one rollout: that of its first seat. `seats` has all of them. `metrics` are those
    of the tasks, and of their rewards.
    """

    seats: Mapping[Seat, Rollout]
    metrics: Mapping[str, float] = field(default_factory=dict)
    truncated: bool = False


def played_episode(episode: Any, is_trained: Callable[[Any], bool]) -> PlayedEpisode | FailedRollout:
    """`is_trained` says of a trace whether the policy sampled it and is to learn from it."""
    sampled = sum(sampled_tokens(trace) for trace in episode.traces)
    if not episode.ok:
        return failed_episode(episode, sampled)
    seats = dict(_seats(trace for trace in episode.traces if is_trained(trace)))
    truncated = any(trace.is_truncated for trace in episode.traces)
    if not seats:
        return FailedRollout("raised", NO_ROOM if truncated else NOT_A_WORD, sampled)
    first = next(iter(seats.values()))
    return PlayedEpisode(first.sequences, first.score, seats, _metrics(episode.traces), truncated)


def seat_groups(episodes: Sequence[PlayedEpisode]) -> list[list[Rollout]]:
    """A group for each seat: rollouts of different agents have different rewards to expect, and are not compared. A
    seat that has said something in some of the episodes only has a smaller group.
    """
    seats = dict.fromkeys(seat for episode in episodes for seat in episode.seats)
    groups = ([episode.seats[seat] for episode in episodes if seat in episode.seats] for seat in seats)
    return [group for group in groups if len(group) >= min(SMALLEST_GROUP, len(episodes))]


def sampled_tokens(trace: Any) -> int:
    return sum(sum(node.mask) for node in trace.nodes)


def _seats(traces: Iterator[Any]) -> Iterator[tuple[Seat, Rollout]]:
    """In the order of the agents' names: that in which they end differs from episode to episode."""
    runs: Counter[str] = Counter()
    found: list[tuple[Seat, Rollout]] = []
    for trace in traces:
        seat = (trace.agent.name, runs[trace.agent.name])
        runs[trace.agent.name] += 1
        if sequences := _sequences(trace):
            found.append((seat, Rollout(sequences, float(trace.reward), components=_components(trace))))
    yield from sorted(found, key=lambda each: each[0])


def _components(trace: Any) -> dict[str, float]:
    scores = {name: reward.score for name, reward in trace.rewards.items() if reward is not None}
    return {name: float(score) for name, score in scores.items() if score is not None}


def _sequences(trace: Any) -> list[SampledSequence]:
    trained: set[int] = set()
    sequences = (_sequence(branch.nodes, trained) for branch in trace.branches if branch.trainable)
    return [each for each in sequences if each is not None]


def _sequence(nodes: Sequence[Any], trained: set[int]) -> SampledSequence | None:
    """None if nothing new was sampled. Notes what it trains in `trained`, by the nodes' ids."""
    sequence, sampled = SampledSequence([], [], []), False
    for node in nodes:
        is_new = id(node) not in trained and any(node.mask)
        logprobs = iter(node.logprobs)
        for token, was_sampled in zip(node.token_ids, node.mask, strict=True):
            counts = is_new and was_sampled
            sequence.tokens.append(token)
            sequence.masks.append(token if counts else PROMPT_MASK)
            sequence.logprobs.append(next(logprobs) if counts else PROMPT_LOGPROB)
        if is_new:
            trained.add(id(node))
            sampled = True
    return sequence if sampled else None


def _metrics(traces: Sequence[Any]) -> dict[str, float]:
    """`reward/NAME` and `metric/NAME`: the mean over the traces that have it."""
    values: dict[str, list[float]] = {}
    for trace in traces:
        named = {f"metric/{name}": value for name, value in trace.metrics.items()}
        named |= {f"reward/{name}": reward.score for name, reward in trace.rewards.items() if reward is not None}
        for name, value in named.items():
            if value is not None:
                values.setdefault(name, []).append(float(value))
    return {name: sum(each) / len(each) for name, each in values.items()}


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
