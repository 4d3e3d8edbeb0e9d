"""Tokens that a backend charges for, counted where they are sent: also those of replayed steps and of evaluations."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class TokenUse:
    """Since the start of the process, by the columns of Tinker's price list.

    prefill  prompts, once per request whatever its number of samples, and forward passes for logprobs only
    sample   sampled tokens; of requests that were canceled the mean of those that came back, or the most they may be
    train    sequences of forward_backward, prompts included
    open     samples that were asked for and have not come back; open_most is the most tokens that they may have
    """

    prefill: int = 0
    sample: int = 0
    train: int = 0
    open: int = 0
    open_most: int = 0
    _answered: int = 0
    _answered_tokens: int = 0

    @contextlib.contextmanager
    def sampling(self, prompt: int, samples: int, max_tokens: int) -> Iterator[Callable[[int], None]]:
        """Around a request. It gives what is to be told how many tokens came back; a refused request costs nothing."""
        self.open += samples
        self.open_most += samples * max_tokens
        try:
            yield lambda tokens: self._answered_with(prompt, samples, tokens)
        except asyncio.CancelledError:  # the backend does not say how far it came, and charges for it
            self.prefill += prompt
            self.sample += samples * min(max_tokens, self._mean(max_tokens))
            raise
        finally:
            self.open -= samples
            self.open_most -= samples * max_tokens

    def _answered_with(self, prompt: int, samples: int, tokens: int) -> None:
        self.prefill += prompt
        self.sample += tokens
        self._answered += samples
        self._answered_tokens += tokens

    @property
    def open_tokens(self) -> int:
        """How many the open samples are expected to have."""
        return self.open * self._mean(0)

    def _mean(self, otherwise: int) -> int:
        return round(self._answered_tokens / self._answered) if self._answered else otherwise
