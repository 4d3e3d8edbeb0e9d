"""Training sequences without what they share: rollouts of a group have the same prompt, which is computed once.

The packed row of a microbatch holds each shared prefix, then each sequence's own rest, without padding. Logprobs and
gradients are those of the sequences one by one, up to the order of sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import torch

from tinker_service.model.packed_attention import QueriesKeysValues, additive

MAX_SHARING = 128  # sequences of one prefix: bounds the search

Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Sequences, by their indices, and how many tokens at their beginning are the same."""

    members: tuple[int, ...]
    length: int


def shared_prefixes(sequences: Sequence[Tokens]) -> list[SharedPrefix]:
    """The division into sets with one shared prefix each that saves most tokens."""
    order = sorted(range(len(sequences)), key=lambda index: sequences[index].astype(">u4").tobytes())
    common = [_common(sequences[one], sequences[other]) for one, other in pairwise(order)]
    # best[n]: of the first n in order, how many tokens can be saved, and where the last set begins.
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(order) + 1):
        shared, choice = len(sequences[order[end - 1]]), (best[end - 1][0], end - 1)  # alone
        for start in range(end - 2, max(-1, end - 1 - MAX_SHARING), -1):
            shared = min(shared, common[start])
            if not shared:
                break
            choice = max(choice, (best[start][0] + (end - 1 - start) * shared, start))
        best.append(choice)
    found, end = [], len(order)
    while end:
        start = best[end][1]
        length = min(common[start : end - 1], default=0)
        found.append(SharedPrefix(tuple(order[start:end]), length))
        end = start
    return found[::-1]


def _common(one: Tokens, other: Tokens) -> int:
    shorter = min(len(one), len(other))
    different = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(different[0]) if len(different) else shorter


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive tokens of a sequence, and those before them, by their places in the packed row."""

    past: Tokens
    own: Tokens


class PackedSequences:
    """Sequences B of up to T tokens as one row of N.

    `tokens` and `positions` [1, N]; `places` [B, T]: where each sequence's tokens are in the row (0 for padding);
    `pieces` and `order` are for the packed attention.
    """

    def __init__(self, sequences: Sequence[Tokens], device: torch.device, dtype: torch.dtype) -> None:
        sets = shared_prefixes(sequences)
        tokens = [sequences[each.members[0]][: each.length] for each in sets]
        prefixes = [_Run(_NOTHING, own) for own in _consecutive(tokens, 0)]
        owners = [(prefix, member) for each, prefix in zip(sets, prefixes, strict=True) for member in each.members]
        rests = [sequences[member][len(prefix.own) :] for prefix, member in owners]
        own_places = _consecutive(rests, sum(map(len, tokens)))
        runs = [_Run(prefix.own, own) for (prefix, _), own in zip(owners, own_places, strict=True)]

        places = np.zeros((len(sequences), max(map(len, sequences))), np.int64)
        for (_, member), run in zip(owners, runs, strict=True):
            places[member, : len(run.past) + len(run.own)] = np.concatenate([run.past, run.own])
        self.places = torch.from_numpy(places).to(device)
        self.tokens = torch.from_numpy(np.concatenate([*tokens, *rests])[None]).to(device)
        positions = np.concatenate([len(run.past) + np.arange(len(run.own)) for run in (*prefixes, *runs)])
        self.positions = torch.from_numpy(positions[None]).to(device)
        stacks = [filled for stack in (prefixes, runs) if (filled := [run for run in stack if len(run.own)])]
        self.pieces = [RunsPiece(stack, device, dtype) for stack in stacks]
        self.order = torch.from_numpy(_order(stacks, len(positions))).to(device)


class RunsPiece:
    """Runs of a packed row that attend to their pasts and themselves (a packed attention's piece)."""

    def __init__(self, runs: Sequence[_Run], device: torch.device, dtype: torch.dtype) -> None:
        self._dtype = dtype
        past, own = _stacked([run.past for run in runs]), _stacked([run.own for run in runs])
        self._queries = torch.from_numpy(own).to(device)
        self._keys = torch.from_numpy(np.concatenate([past, own], axis=1)).to(device)
        begins = torch.tensor([len(run.past) for run in runs], device=device)[:, None]
        if not past.shape[1]:
            begins = begins[:1]  # the same mask for all
        own_positions = begins + torch.arange(own.shape[1], device=device)
        past_positions = torch.arange(past.shape[1], device=device).expand(len(begins), -1)
        never = past_positions.masked_fill(past_positions >= begins, torch.iinfo(torch.long).max)
        self._query_positions, self._key_positions = own_positions, torch.cat([never, own_positions], dim=1)
        self._masks: dict[int | None, torch.Tensor] = {}

    def select(
        self, layer: int, queries_NHD: torch.Tensor, keys_NHD: torch.Tensor, values_NHD: torch.Tensor
    ) -> QueriesKeysValues:
        del layer  # nothing is kept
        return _at(queries_NHD, self._queries), _at(keys_NHD, self._keys), _at(values_NHD, self._keys)

    def mask(self, window: int | None) -> torch.Tensor:
        """Causal, within the window: [R, 1, T, S], or for runs without a past [1, 1, T, T]."""
        if window not in self._masks:
            looks, seen = self._query_positions[:, :, None], self._key_positions[:, None, :]
            hidden = seen > looks
            if window is not None:
                hidden |= seen <= looks - window
            self._masks[window] = additive(hidden, self._dtype)[:, None]
        return self._masks[window]


_NOTHING = np.zeros(0, np.int64)


def _consecutive(stack: Sequence[Tokens], first: int) -> list[Tokens]:
    """The places of arrays that stand one after another from `first` on."""
    ends = [first, *(first + end for end in accumulate(map(len, stack)))]
    return [np.arange(start, end) for start, end in pairwise(ends)]


def _stacked(stack: Sequence[Tokens]) -> npt.NDArray[np.int64]:
    """[R, T], with zeros after shorter ones."""
    stacked = np.zeros((len(stack), max(map(len, stack))), np.int64)
    for row, values in enumerate(stack):
        stacked[row, : len(values)] = values
    return stacked


def _order(stacks: Sequence[Sequence[_Run]], tokens: int) -> Tokens:
    """Where each token of the row is among the padded runs of all stacks."""
    order, first = np.zeros(tokens, np.int64), 0
    for stack in stacks:
        width = max(len(run.own) for run in stack)
        for run in stack:
            order[run.own] = first + np.arange(len(run.own))
            first += width
    return order


def _at(values_NHD: torch.Tensor, places_RT: torch.Tensor) -> torch.Tensor:
    return values_NHD.index_select(0, places_RT.flatten()).view(*places_RT.shape, *values_NHD.shape[1:])
