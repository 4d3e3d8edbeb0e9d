"""Keys and values of sequences that grow: a tensor per layer with room to grow, never a new one per token.

Sequences of similar length share a `CachePart`. One that outgrows its part moves to the part of twice the capacity, so
short sequences never pay for the padding of long ones, and each position is copied less than once on average.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from tinker_service.model.lora import LoraAdapter
from tinker_service.model.packed_attention import QueriesKeysValues, additive
from tinker_service.model.sampling.sample_jobs import Row

SMALLEST_PART = 64  # positions
ROWS_GROW_BY = 1.25


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What one position of a sequence takes."""

    layers: int
    heads: int
    head_size: int
    dtype: torch.dtype
    device: torch.device
    context: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> "CacheShape":
        config = model.config.get_text_config()
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            layers=config.num_hidden_layers,
            heads=config.num_key_value_heads,
            head_size=head_size,
            dtype=model.dtype,
            device=model.device,
            context=config.max_position_embeddings,
        )

    @property
    def position_bytes(self) -> int:
        return 2 * self.layers * self.heads * self.head_size * self.dtype.itemsize

    def part_capacity(self, positions: int) -> int:
        """The capacity of the part for sequences of this length."""
        capacity = SMALLEST_PART
        while capacity < positions:
            capacity *= 2
        return max(positions, min(capacity, self.context))


class KeyValues:
    """Tensors [2 (keys, values), R, C, H, D], one per layer: rows R with room for C positions each."""

    def __init__(self, shape: CacheShape, rows: int, capacity: int) -> None:
        self._shape = shape
        self.rows, self.capacity = rows, capacity
        self.layers = [self._allocated(rows) for _ in range(shape.layers)]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.rows * self.capacity * self._shape.position_bytes

    def resize(self, rows: int, kept: int) -> None:
        """Layer by layer: at no time are there two copies of everything. The first `kept` rows stay."""
        for layer, old in enumerate(self.layers):
            new = self._allocated(rows)
            new[:, :kept] = old[:, :kept]
            self.layers[layer] = new
        self.rows = rows

    def _allocated(self, rows: int) -> torch.Tensor:
        shape = self._shape
        return torch.empty(2, rows, self.capacity, shape.heads, shape.head_size, dtype=shape.dtype, device=shape.device)


class CachePart:
    """Rows of up to `capacity` positions that take one new token per forward pass (a packed attention's piece)."""

    def __init__(self, shape: CacheShape, capacity: int) -> None:
        self._shape = shape
        self.capacity = capacity
        self.rows: list[Row] = []
        self.lengths: list[int] = []  # positions that are cached
        self._stored = KeyValues(shape, 0, capacity)
        self._first = 0
        self._places = (torch.empty(0), torch.empty(0))
        self._masks: dict[int | None, torch.Tensor] = {}

    @property
    def sequences(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """Bytes that are allocated."""
        return self._stored.size

    def growth(self, rows: int) -> int:
        """Bytes that so many more rows would take."""
        needed = len(self.rows) + rows
        if needed <= self._stored.rows:
            return 0
        return (_with_room(needed) - self._stored.rows) * self.capacity * self._shape.position_bytes

    def reserve(self, rows: int) -> None:
        """Allocate room for so many more rows."""
        needed = len(self.rows) + rows
        if needed > self._stored.rows:
            self._stored.resize(_with_room(needed), len(self.rows))

    def add(self, rows: Sequence[Row], source: KeyValues, source_rows: Sequence[int], length: int) -> None:
        """Add rows with the first `length` positions of other rows; one of those may be taken several times."""
        self.reserve(len(rows))
        start, end = len(self.rows), len(self.rows) + len(rows)
        for mine, theirs in zip(self._stored.layers, source.layers, strict=True):
            mine[:, start:end, :length] = theirs[:, list(source_rows), :length]
            mine[:, start:end, length:] = 0  # a masked position counts 0 x value: what a former row left may be NaN
        self.rows.extend(rows)
        self.lengths.extend([length] * len(rows))

    def remove(self, indices: Sequence[int]) -> None:
        """Remove rows; the last ones take their places."""
        removed = set(indices)
        left = len(self.rows) - len(removed)
        holes = [index for index in sorted(removed) if index < left]
        movers = [index for index in range(left, len(self.rows)) if index not in removed]
        if holes:
            longest = max(self.lengths[index] for index in [*movers, *holes])
            for layer in self._stored.layers:
                layer[:, holes, :longest] = layer[:, movers, :longest]
            for hole, mover in zip(holes, movers, strict=True):
                self.rows[hole], self.lengths[hole] = self.rows[mover], self.lengths[mover]
        del self.rows[left:], self.lengths[left:]
        if _with_room(left) < self._stored.rows // 2:
            self._stored.resize(_with_room(left), left)

    def move(self, indices: Sequence[int], larger: "CachePart") -> None:
        """Give rows that have reached the capacity to another part."""
        larger.add([self.rows[index] for index in indices], self._stored, indices, self.capacity)
        self.remove(indices)

    def begin_step(self, first: int) -> None:
        """Call before a forward pass, in which every row gets its next position. `first`: where its rows begin among
        the pass's tokens.
        """
        device = self._shape.device
        self._first = first
        self._masks.clear()
        lengths_R = torch.tensor(self.lengths, device=device)
        self._places = (torch.arange(len(self.rows), device=device), lengths_R)

    def end_step(self) -> None:
        self.lengths = [length + 1 for length in self.lengths]

    def select(
        self, layer: int, queries_NHD: torch.Tensor, keys_NHD: torch.Tensor, values_NHD: torch.Tensor
    ) -> QueriesKeysValues:
        own = slice(self._first, self._first + len(self.rows))
        keys, values = self._stored.layers[layer].unbind(0)
        keys[self._places] = keys_NHD[own]
        values[self._places] = values_NHD[own]
        return queries_NHD[own, None], keys[: len(self.rows)], values[: len(self.rows)]

    def mask(self, window: int | None) -> torch.Tensor:
        """[R, 1, 1, S], the same for all layers with this window. S is the capacity, not what the longest row needs:
        sums over other numbers of positions have other roundings, and a row's must not depend on its neighbors.
        """
        if window not in self._masks:
            self._masks[window] = self._new_mask(window)
        return self._masks[window]

    def _new_mask(self, window: int | None) -> torch.Tensor:
        last_R1 = self._places[1][:, None]
        positions_S = torch.arange(self.capacity, device=self._shape.device)
        hidden = positions_S > last_R1
        if window is not None:
            hidden |= positions_S <= last_R1 - window
        return additive(hidden, self._shape.dtype)[:, None, None]


class PromptCache:
    """Prompts of the same length that are read together, chunk by chunk (a packed attention's piece)."""

    def __init__(self, shape: CacheShape, prompts: int, length: int) -> None:
        self._shape, self._prompts = shape, prompts
        self.stored = KeyValues(shape, 0, length)
        self.length, self.done = length, 0
        self.new_tokens = self._first = 0
        self._masks: dict[int | None, torch.Tensor] = {}

    @property
    def tokens(self) -> int:
        """How many the step reads."""
        return self._prompts * self.new_tokens

    @property
    def size(self) -> int:
        """Bytes that it takes from its first step on."""
        return self._prompts * self.length * self._shape.position_bytes

    def begin_step(self, first: int) -> None:
        """Call before a forward pass, in which each prompt's `new_tokens` are read. `first`: where these begin."""
        if not self.stored.rows:
            self.stored.resize(self._prompts, 0)
        self._first = first
        self._masks.clear()

    def end_step(self) -> None:
        self.done += self.new_tokens

    def select(
        self, layer: int, queries_NHD: torch.Tensor, keys_NHD: torch.Tensor, values_NHD: torch.Tensor
    ) -> QueriesKeysValues:
        own, start, end = slice(self._first, self._first + self.tokens), self.done, self.done + self.new_tokens
        shape = (self._prompts, self.new_tokens, *keys_NHD.shape[1:])
        keys, values = self.stored.layers[layer].unbind(0)
        keys[:, start:end] = keys_NHD[own].view(shape)
        values[:, start:end] = values_NHD[own].view(shape)
        return queries_NHD[own].view(*shape[:2], *queries_NHD.shape[1:]), keys[:, :end], values[:, :end]

    def mask(self, window: int | None) -> torch.Tensor:
        """[T, S]: causal."""
        if window not in self._masks:
            positions_S = torch.arange(self.done + self.new_tokens, device=self._shape.device)
            own_T1 = positions_S[self.done :, None]
            hidden = positions_S > own_T1
            if window is not None:
                hidden |= positions_S <= own_T1 - window
            self._masks[window] = additive(hidden, self._shape.dtype)
        return self._masks[window]


def _with_room(rows: int) -> int:
    """Rows to allocate for so many, so that a few more do not allocate again."""
    return int(rows * ROWS_GROW_BY)


TOKENS_PER_STEP = 512  # of prompts; the sequences that run wait for them
SMALLEST_CHUNK = 32  # of one prompt: a chunk costs a look at all tokens before it


@dataclass(slots=True)
class UnreadPrompt:
    """A context and the rows that continue it: a request's prompt or, of a row that was set back, all its tokens."""

    adapter: LoraAdapter | None
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
