"""One forward pass for a step: every running sequence's last token, and a chunk of the prompts that are being read."""

from collections.abc import Sequence

import torch

from tinker_atropos.tinker_service.model.lora import Adapter, AdapterTokens, LoraModel
from tinker_atropos.tinker_service.model.packed_attention import Piece, packed_attention
from tinker_atropos.tinker_service.model.sampling.prompts import PromptGroup
from tinker_atropos.tinker_service.model.sampling.sequence_cache import CachePart


def next_logits(
    model: LoraModel, parts: Sequence[CachePart], groups: Sequence[PromptGroup], device: torch.device
) -> torch.Tensor:
    """Logits [B, V] of the next tokens: of the parts' rows in order, then of the rows whose prompts end here."""
    tokens, positions, adapters = _packed(parts, groups)
    with_logits, sequences = _wanted(parts, groups)
    shares = _shares(adapters, with_logits, device)
    pieces = _begun(parts, groups)
    with model.mixed(shares) as mixed, packed_attention(mixed):
        logits_1BV = mixed(
            input_ids=torch.tensor([tokens], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(with_logits, dtype=torch.long, device=device),
            pieces=pieces,
        ).logits
    logits_BV: torch.Tensor = logits_1BV[0]
    if sequences == [*range(len(with_logits))]:
        return logits_BV
    return logits_BV[torch.tensor(sequences, device=device)]


def _begun(parts: Sequence[CachePart], groups: Sequence[PromptGroup]) -> list[Piece]:
    pieces: list[Piece] = []
    first = 0
    for part in parts:
        part.begin_step(first)
        pieces.append(part)
        first += part.sequences
    for group in groups:
        group.cache.begin_step(first)
        pieces.append(group.cache)
        first += group.cache.tokens
    return pieces


def _packed(
    parts: Sequence[CachePart], groups: Sequence[PromptGroup]
) -> tuple[list[int], list[int], list[Adapter | None]]:
    """Of each token in the packed row: itself, its position, and the adapter that works on it."""
    rows = [row for part in parts for row in part.rows]
    tokens = [row.continuation.tokens[-1] for row in rows]
    positions = [length for part in parts for length in part.lengths]
    adapters = [row.job.adapter for row in rows]
    for group in groups:
        chunk, new = group.chunk, group.cache.new_tokens
        tokens += chunk
        positions += [*range(group.cache.done, group.cache.done + new)] * len(group.prompts)
        adapters += [group.adapter] * len(chunk)
    return tokens, positions, adapters


def _wanted(parts: Sequence[CachePart], groups: Sequence[PromptGroup]) -> tuple[list[int], list[int]]:
    """Which tokens of the packed row get logits, and for each sequence that gets a token, whose of these it takes."""
    running = sum(part.sequences for part in parts)
    with_logits, sequences, start = [*range(running)], [*range(running)], running
    for group in groups:
        new = group.cache.new_tokens
        if group.ends_here:
            first = len(with_logits)
            with_logits += [start + (index + 1) * new - 1 for index in range(len(group.prompts))]
            sequences += [first + index for index in group.sources]
        start += new * len(group.prompts)
    return with_logits, sequences


def _shares(
    adapters: Sequence[Adapter | None], with_logits: Sequence[int], device: torch.device
) -> list[AdapterTokens]:
    """The adapters in the row, each with its places; one that works on everything needs none."""
    different = {id(adapter): adapter for adapter in adapters}
    if len(different) == 1:
        return [AdapterTokens(adapter) for adapter in different.values() if adapter]
    shares = []
    for adapter in filter(None, different.values()):
        tokens = [index for index, other in enumerate(adapters) if other is adapter]
        logits = [place for place, index in enumerate(with_logits) if adapters[index] is adapter]
        places = (torch.tensor(indices, dtype=torch.long, device=device) for indices in (tokens, logits))
        shares.append(AdapterTokens(adapter, *places))
    return shares
