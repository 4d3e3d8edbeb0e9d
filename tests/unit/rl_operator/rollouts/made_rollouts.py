"""Rollout files as a trainer writes them, and a source that serves them from memory."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import zstandard

from rl_operator.operator_errors import GoneError
from rl_operator.rollouts.rollout_source import RolloutFile, RolloutListing

Record = dict[str, Any]
LONG = 1_000
"""Characters."""


def step(number: int, tokens: Mapping[str, int], *, attempt: int = 1, **metrics: float) -> Record:
    return {
        "record": "step", "format": 1, "run": "sorting", "namespace": "default", "uid": "u", "attempt": attempt,
        "model": "tiny", "step": number, "time": 1.0, "metrics": metrics, "tokens": dict(tokens),
    }  # fmt: skip


def sequence(answer: str, fate: str = "trained", *, given: str = "", gap: float = 0.0, policy: int = 0) -> Record:
    """`given`: a prompt of its own before the answer."""
    pieces = [*_pieces(given), *_pieces(answer)]
    told, sampled = len(_pieces(given)), len(_pieces(answer))
    fates = [[0, told, "prompt"]] if given else []
    return {
        "tokens": list(range(len(pieces))),
        "pieces": pieces,
        "logprobs": [None] * told + [-1.0] * sampled,
        "trained_logprobs": [None] * told + [-1.0 - gap] * sampled,
        "policy_steps": [[told, len(pieces), policy]],
        "fates": [*fates, [told, len(pieces), fate]],
    }


def _pieces(text: str) -> list[str]:
    """A token per character, or one for a long text."""
    return list(text) if len(text) <= LONG else [text]


def rollout(reward: float | None, answer: str = "abc", fate: str = "trained", **more: Any) -> Record:
    of_sequence = {name: more.pop(name) for name in ("given", "gap", "policy") if name in more}
    return {"reward": reward, "advantage": None, "sequences": [sequence(answer, fate, **of_sequence)], **more}


def group(number: int, *rollouts: Record, fate: str = "trained", prompt: str = "sort", **more: Any) -> Record:
    shared = {"tokens": list(range(len(_pieces(prompt)))), "pieces": _pieces(prompt)}
    return {
        "record": "group", "group": number, "fate": fate, "prompt": shared, "rollouts": list(rollouts), **more,
    }  # fmt: skip


def lost(reason: str = "timeout", count: int = 1, **more: Any) -> Record:
    return {"record": "lost", "what": "rollout", "reason": reason, "why": f"it was {reason}", "count": count, **more}


def line(record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def frame(*records: Any) -> bytes:
    """Records, or lines as they are."""
    lines = (each if isinstance(each, bytes) else line(each) for each in records)
    return zstandard.ZstdCompressor().compress(b"".join(lines))


class MemorySource:
    """Implements `rollout_source.RolloutSource`. `reads`: the names of what was read. `gone`: listed, and not there."""

    where = "memory"

    def __init__(self, files: Mapping[str, bytes], *, every: int = 1, note: str | None = None) -> None:
        self.files = dict(files)
        self.every, self.note = every, note
        self.reads: list[str] = []
        self.gone: set[str] = set()

    def listing(self) -> RolloutListing:
        files = tuple(RolloutFile(name, len(content)) for name, content in self.files.items())
        return RolloutListing(files, self.every, self.note)

    def content(self, name: str, begin: int = 0) -> bytes:
        self.reads.append(name)
        if name in self.gone:
            raise GoneError(f"no {name}")
        return self.files[name][begin:]


def source(files: Mapping[str, Iterable[Any]], **more: Any) -> MemorySource:
    """Files of one frame each, by `STEP-ATTEMPT`."""
    named = {f"{int(key.partition('-')[0]):06}-{key.partition('-')[2]}.jsonl.zst": key for key in files}
    return MemorySource({name: frame(*files[key]) for name, key in named.items()}, **more)
