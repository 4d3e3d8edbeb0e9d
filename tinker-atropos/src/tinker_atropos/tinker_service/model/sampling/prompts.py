"""Prompts on their way into the cache: read once for all sequences that continue them, in chunks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinker_atropos.tinker_service.model.lora import Adapter
from tinker_atropos.tinker_service.model.sampling.sample_jobs import Row
from tinker_atropos.tinker_service.model.sampling.sequence_cache import CacheShape, PromptCache

TOKENS_PER_STEP = 512  # of prompts; the sequences that run wait for them
SMALLEST_CHUNK = 32  # of one prompt: a chunk costs a look at all tokens before it


@dataclass(slots=True)
class UnreadPrompt:
    """A context and the rows that continue it: a request's prompt or, of a row that was set back, all its tokens."""

    adapter: Adapter | None
    context: tuple[int, ...]
    rows: list[Row]

    def split(self, rows: int) -> "UnreadPrompt":
        """Take the first rows away, as a prompt of their own."""
        first, self.rows = self.rows[:rows], self.rows[rows:]
        return UnreadPrompt(self.adapter, self.context, first)


class PromptGroup:
    """Prompts of one sampler and one length that are read together: as many as one step can read, at least one."""

    def __init__(self, shape: CacheShape, prompts: Sequence[UnreadPrompt]) -> None:
        self.prompts = prompts
        self.adapter = prompts[0].adapter
        self.length = len(prompts[0].context)
        self.cache = PromptCache(shape, len(prompts), self.length)

    @property
    def rows(self) -> list[Row]:
        return [row for prompt in self.prompts for row in prompt.rows]

    @property
    def sources(self) -> list[int]:
        """For each of `rows`, which prompt it continues."""
        return [index for index, prompt in enumerate(self.prompts) for _ in prompt.rows]

    def remove(self, leaves: Callable[[Row], bool]) -> None:
        for prompt in self.prompts:
            prompt.rows = [row for row in prompt.rows if not leaves(row)]

    @property
    def ends_here(self) -> bool:
        """Whether the step that has begun reads the last tokens."""
        return self.cache.done + self.cache.new_tokens == self.length

    @property
    def chunk(self) -> list[int]:
        """The tokens that the step reads, prompt by prompt."""
        start = self.cache.done
        return [token for prompt in self.prompts for token in prompt.context[start : start + self.cache.new_tokens]]

    def take(self, budget: int) -> int:
        """Let the next step read what fits into so many tokens, or into half of them if that is not all.

        Returns how many are left.
        """
        prompts, remaining = len(self.prompts), self.length - self.cache.done
        if prompts * remaining > budget:
            # The other half is for prompts behind this one: a long one never keeps short ones from starting.
            half = budget // 2 // prompts
            remaining = half if half >= SMALLEST_CHUNK else 0
        self.cache.new_tokens = remaining
        return budget - prompts * remaining
