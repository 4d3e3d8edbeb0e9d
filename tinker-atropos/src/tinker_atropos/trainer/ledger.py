"""What was sampled, as the inference server saw it: the truth about logprobs and policy steps.

Environments pass tokens on, but often drop the logprobs, and none can carry a policy step: a sequence finds its
record again by its prompt and output ids.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from tinker_atropos.trainer.rollouts import Bools, Floats, Ints, Rollout

DEFAULT_CAPACITY = 65_536
"""Records kept: some hundred batches of rollouts."""

SAME_KEY = 8
"""Records kept of one (prompt, output): short outputs repeat, also across policy steps."""

UNKNOWN_STEP = -1


@dataclass(frozen=True, slots=True)
class Sampled:
    """One generation: its logprobs under the distribution it was sampled from, and under which policy."""

    logprobs_T: Floats
    policy_step: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1


@dataclass(frozen=True, slots=True)
class Attribution:
    """A rollout's logprobs and policy steps per position: NaN and UNKNOWN_STEP where nothing is known."""

    logprobs_T: Floats
    policy_step_T: Ints


class Ledger:
    """Bounded memory of generations, the oldest forgotten first."""

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._capacity = capacity
        self._records: OrderedDict[bytes, tuple[Sampled, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def record(self, prompt_T: Ints, output_T: Ints, sampled: Sampled) -> None:
        key = _key(prompt_T, output_T)
        self._records[key] = (sampled, *self._records.pop(key, ()))[:SAME_KEY]
        while len(self._records) > self._capacity:
            self._records.popitem(last=False)

    def find(self, prompt_T: Ints, output_T: Ints, reported_T: Floats) -> Sampled | None:
        """The generation of these ids: the one whose logprobs are nearest to the reported ones, else the newest."""
        candidates = self._records.get(_key(prompt_T, output_T), ())
        if len(candidates) > 1 and not np.isnan(reported_T).any():
            return min(candidates, key=lambda sampled: float(np.abs(sampled.logprobs_T - reported_T).max()))
        return candidates[0] if candidates else None

    def attribute(self, rollout: Rollout) -> Attribution:
        """Look up every generated span of a rollout; logprobs that the environment sent itself are kept."""
        logprobs_T = rollout.logprobs_T.copy()
        policy_step_T = np.full(len(rollout.tokens_T), UNKNOWN_STEP, np.int64)
        for start, end in generated_spans(rollout.generated_T):
            reported_T = logprobs_T[start:end]
            sampled = self.find(rollout.tokens_T[:start], rollout.tokens_T[start:end], reported_T)
            if sampled is not None:
                policy_step_T[start:end] = sampled.policy_step
                logprobs_T[start:end] = np.where(np.isnan(reported_T), sampled.logprobs_T, reported_T)
        return Attribution(logprobs_T, policy_step_T)


def generated_spans(generated_T: Bools) -> Iterator[tuple[int, int]]:
    """The maximal runs [start, end) of generated positions: one per turn."""
    padded = np.concatenate(([False], generated_T, [False]))
    edges = np.flatnonzero(padded[1:] != padded[:-1]).tolist()
    return zip(edges[::2], edges[1::2], strict=True)


def _key(prompt_T: Ints, output_T: Ints) -> bytes:
    digest = blake2b(np.ascontiguousarray(prompt_T, np.int64).tobytes(), digest_size=16)
    digest.update(b"|")
    digest.update(np.ascontiguousarray(output_T, np.int64).tobytes())
    return digest.digest()
