"""Attention of a packed forward pass: the tokens of all sequences side by side in one row, each with its own past.

Everything but attention works on single tokens, so sequences of any lengths need no padding there. Attention goes
through transformers' interface for implementations of one's own: it hands every layer's queries, keys and values to
`attend`, where each `Piece` picks its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel

IMPLEMENTATION = "packed"

QueriesKeysValues = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Piece(Protocol):
    """Sequences R that have T new tokens each, and look back at S tokens, these among them."""

    def select(
        self, layer: int, queries_NHD: torch.Tensor, keys_NHD: torch.Tensor, values_NHD: torch.Tensor
    ) -> QueriesKeysValues:
        """Queries [R, T, H, D], and keys and values [R, S, H, D], given those of the row's N tokens."""

    def mask(self, window: int | None) -> torch.Tensor | None:
        """What to add to the scores, broadcast to [R, 1, T, S]: 0 where a token may look, else -inf. None: zeros."""


@contextmanager
def packed_attention(model: PreTrainedModel) -> Iterator[None]:
    """Within the block the model's forward pass takes `pieces` and `order`, as `attend` does."""
    config = model.config.get_text_config()
    usual = config._attn_implementation  # noqa: SLF001 -- read by the model at each forward pass
    config._attn_implementation = IMPLEMENTATION  # noqa: SLF001 -- set_attn_implementation() takes milliseconds
    try:
        yield
    finally:
        config._attn_implementation = usual  # noqa: SLF001


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 -- the interface's; each piece has its own
    *,
    pieces: Sequence[Piece],
    order: torch.Tensor | None = None,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_unused: Any,
) -> tuple[torch.Tensor, None]:
    """All are [1, H, N, D], with fewer heads H in keys and values; the answer is [1, N, H, D].

    `order` [N]: where each token of the row is among the pieces' tokens. None: they are in the same order, and whatever
    comes after them is padding.
    """
    layer = int(module.layer_idx)  # type: ignore[arg-type]  # an int in every transformers model
    query_NHD, key_NHD, value_NHD = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    outputs = []
    for piece in pieces:
        query_RTHD, keys_RSHD, values_RSHD = piece.select(layer, query_NHD, key_NHD, value_NHD)
        output_RHTD = _attention(
            query_RTHD.transpose(1, 2),
            keys_RSHD.transpose(1, 2),
            values_RSHD.transpose(1, 2),
            mask=piece.mask(sliding_window),
            scaling=scaling,
            softcap=softcap,
        )
        outputs.append(output_RHTD.transpose(1, 2).flatten(0, 1))
    if order is None:
        outputs.append(torch.zeros_like(query_NHD[sum(map(len, outputs)) :]))
    output_NHD = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return (output_NHD if order is None else output_NHD.index_select(0, order))[None], None


AttentionInterface.register(IMPLEMENTATION, attend)


def additive(hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask of scores: -inf where True."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)


def _attention(
    query_RHTD: torch.Tensor,
    keys_RGSD: torch.Tensor,
    values_RGSD: torch.Tensor,
    *,
    mask: torch.Tensor | None,
    scaling: float,
    softcap: float | None,
) -> torch.Tensor:
    """Grouped-query attention: H query heads share G heads of keys and values."""
    rows, heads, tokens, size = query_RHTD.shape
    groups = keys_RGSD.shape[1]
    if tokens == 1 and softcap is None:
        # Query heads that share keys stand where several tokens would: no copies of the keys, and one kernel.
        shared = query_RHTD.reshape(rows, groups, heads // groups, size)
        output = functional.scaled_dot_product_attention(shared, keys_RGSD, values_RGSD, mask, scale=scaling)
        return output.reshape(rows, heads, 1, size)
    if softcap is None:
        return functional.scaled_dot_product_attention(
            query_RHTD, keys_RGSD, values_RGSD, mask, scale=scaling, enable_gqa=heads != groups
        )
    keys_RHSD, values_RHSD = (tensor.repeat_interleave(heads // groups, dim=1) for tensor in (keys_RGSD, values_RGSD))
    scores = (query_RHTD @ keys_RHSD.transpose(-1, -2)) * scaling
    scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return weights.to(values_RHSD.dtype) @ values_RHSD
