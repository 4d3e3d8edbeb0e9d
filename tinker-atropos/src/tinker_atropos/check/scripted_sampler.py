"""The sampler in the place of a model. Its answers to each prompt are, in turn, the environment's gold answer (where it
knows one), its wrong answer, an empty one, and random tokens: what a policy may come up with before it has learned.

All of it follows from a seed. Random tokens are as they are drawn: tokenizing their text again gives others, as it does
with a real policy, which environments that make tokens from text do not notice.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from tinker_atropos.arrays import Floats, Ints
from tinker_atropos.chat.openai_answers import first_stop
from tinker_atropos.chat.sampling import Sample, SamplingSettings
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.check.observations import ScriptedKind
from tinker_atropos.trainer.inference.ledger import ID, prefix_keys
from tinker_atropos.trainer.inference.ledger_file import GenerationRecord

MAX_RANDOM_TOKENS: Final = 24
MEAN_LOGPROB: Final = -0.7
GREEDY: Final = 0.01
"""Temperature, or top_p, up to which all mass is on one token."""

UNREADABLE: Final = "\ufffd"
"""Part of a character: a token of its own means nothing as text."""


class ScriptedSampler:
    """Called in the server's thread; `expect` in the environment's, between two items."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer, self._seed = tokenizer, seed
        self._texts: dict[ScriptedKind, Sequence[str]] = {}
        self._asked: Counter[int] = Counter()
        self._said: dict[tuple[int, bytes], ScriptedKind] = {}
        self._continued: dict[int, ScriptedKind] = {}

    def expect(self, gold: str | None, wrong: Sequence[str]) -> None:
        """The answers to the item that is rolled out next."""
        given: dict[ScriptedKind, Sequence[str]] = {"gold": () if gold is None else (gold,), "wrong": wrong}
        self._texts = {**{kind: texts for kind, texts in given.items() if texts}, "empty": ("",)}
        self._asked.clear()

    def kind_of(self, generation: GenerationRecord) -> ScriptedKind | None:
        return self._said.get((generation.prompt_key, generation.output))

    async def sample(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> list[Sample]:
        keys = prefix_keys(prompt_T)
        following = self._conversation(keys) if n == 1 else None
        return [self._answer(prompt_T, int(keys[-1]), settings, following) for _ in range(n)]

    async def logprobs(self, tokens_T: Ints) -> Floats:
        """Of a model that is never certain: what it calls certain when it samples was shaped (see SamplingProbe)."""
        logprobs_T = np.full(len(tokens_T), 2 * MEAN_LOGPROB)
        logprobs_T[:1] = np.nan
        return logprobs_T

    def _conversation(self, keys: Ints) -> ScriptedKind | None:
        """The kind of the answer that a prompt goes on from: a conversation stays what it began as."""
        return next((self._continued[key] for key in reversed(keys.tolist()) if key in self._continued), None)

    def _answer(self, prompt_T: Ints, key: int, settings: SamplingSettings, following: ScriptedKind | None) -> Sample:
        number = self._asked[key]
        self._asked[key] += 1
        kinds: tuple[ScriptedKind, ...] = (*self._texts, "random")
        kind = following or kinds[number % len(kinds)]
        generator = np.random.default_rng([self._seed, key % 2**63, number])
        texts = self._texts.get(kind, ("",))
        text = texts[number // len(kinds) % len(texts)]
        tokens = self._random(generator) if kind == "random" else self._encoded(text)
        tokens, ended = self._stopped(tokens, settings)
        tokens_T = np.array(tokens[: settings.max_tokens], np.int64)
        self._said.setdefault((key, tokens_T.astype(ID).tobytes()), kind)
        self._continued.setdefault(int(prefix_keys(np.concatenate([prompt_T, tokens_T]))[-1]), kind)
        stop = ended and len(tokens) <= settings.max_tokens
        return Sample(tokens_T, _logprobs(generator, len(tokens_T), settings), "stop" if stop else "length")

    def _random(self, generator: np.random.Generator) -> list[int]:
        wanted, tokens = int(generator.integers(1, MAX_RANDOM_TOKENS + 1)), list[int]()
        while len(tokens) < wanted:
            drawn = generator.integers(0, self._tokenizer.vocabulary, wanted).tolist()
            tokens += [token for token in drawn if self._is_readable(token)]
        return tokens[:wanted]

    def _is_readable(self, token: int) -> bool:
        (text,) = self._tokenizer.decode_each(np.array([token]))
        return bool(text) and UNREADABLE not in text and token not in self._tokenizer.special_ids

    def _encoded(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).tolist()
        return tokens

    def _stopped(self, tokens: list[int], settings: SamplingSettings) -> tuple[list[int], bool]:
        """The tokens up to a stop, and it; whether there is one."""
        stops = settings.stop
        words = [stop for stop in stops or () if isinstance(stop, str)]
        if found := first_stop(self._tokenizer.decode(np.array(tokens, np.int64)), words):
            return self._encoded(self._tokenizer.decode(np.array(tokens, np.int64)).partition(found)[0] + found), True
        end = [self._tokenizer.eos_id] if stops is None or self._tokenizer.eos in words else [*(stops or ())][:1]
        ids = [each for stop in end if stop is not None for each in self._ids(stop)]
        return [*tokens, *ids], bool(ids)

    def _ids(self, stop: str | int) -> list[int]:
        return [stop] if isinstance(stop, int) else self._encoded(stop)


def _logprobs(generator: np.random.Generator, length: int, settings: SamplingSettings) -> Floats:
    """Of a backend that tells those of the distribution that it drew from: one token has all of a greedy one."""
    if settings.temperature <= GREEDY or settings.top_p <= GREEDY or settings.top_k == 1:
        return np.zeros(length)
    logprobs_T: Floats = MEAN_LOGPROB * generator.exponential(size=length)
    return logprobs_T
