"""From a datum's provenance (which recorded sequence each of its tokens is of) to what was recorded of its targets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tinker_atropos.tinker_service.model.recordings import RecordedSequence
from tinker_atropos.tinker_service.model.training import TrainingDatum
from tinker_atropos.tinker_service.request_errors import RequestError

Find = Callable[[str], RecordedSequence]


@dataclass(frozen=True, slots=True)
class ProvenanceSpan:
    """`length` consecutive tokens: from `offset` on, in the prompt or (`sampled`) in the tokens of a sequence."""

    sequence_id: str
    sampled: bool
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Runs that tile a datum's input tokens, and others that tile its targets."""

    inputs: Sequence[ProvenanceSpan]
    targets: Sequence[ProvenanceSpan]


def with_recorded(index: int, datum: TrainingDatum, provenance: Provenance | None, find: Find) -> TrainingDatum:
    """The datum with `logprobs`, as they were when each target was sampled (0 elsewhere), and `sampled`, 1 for each
    sampled target.

    Raises RequestError if the claims are missing or wrong, NotFoundError if a sequence is not recorded.
    """
    field = f"data[{index}]"
    if provenance is None:
        raise RequestError(
            f"{field} does not say which recorded sequences its tokens are of: attach that with Datum.with_provenance, "
            f"and sample from a client that was made with record_stability_info=True"
        )
    _check_inputs(f"{field}.model_input", datum.tokens, provenance.inputs, find)
    targets, advantages = datum.inputs["target_tokens"], datum.inputs["advantages"]
    logprobs, sampled = np.zeros(targets.shape), np.zeros(targets.shape)
    for place, span in _tiled(f"{field}.loss_fn_inputs", provenance.targets, len(targets)):
        if span.sampled:  # other targets are not trained, and may be anything
            sequence = find(span.sequence_id)
            _check_tokens(
                f"{field}.loss_fn_inputs['target_tokens']", targets[place], _part(sequence.tokens, span), span
            )
            logprobs[place] = _part(sequence.logprobs, span)
            sampled[place] = 1.0
    if np.any((advantages != 0) & (sampled == 0)):
        raise RequestError(f"{field}.loss_fn_inputs['advantages'] is not 0 where the target was not sampled")
    return replace(datum, inputs={**datum.inputs, "logprobs": logprobs, "sampled": sampled})


def _check_inputs(field: str, tokens: npt.NDArray[np.int64], spans: Sequence[ProvenanceSpan], find: Find) -> None:
    for place, span in _tiled(field, spans, len(tokens)):
        sequence = find(span.sequence_id)
        recorded = sequence.tokens if span.sampled else sequence.prompt
        _check_tokens(field, tokens[place], _part(recorded, span), span)


def _tiled(field: str, spans: Sequence[ProvenanceSpan], length: int) -> list[tuple[slice, ProvenanceSpan]]:
    """Each span with its place in the field."""
    ends = np.cumsum([span.length for span in spans], dtype=np.int64).tolist()
    if not spans or ends[-1] != length:
        raise RequestError(f"the spans of {field} cover {ends[-1] if spans else 0} positions and it has {length}")
    return [(slice(end - span.length, end), span) for end, span in zip(ends, spans, strict=True)]


def _part(recorded: npt.NDArray[np.generic], span: ProvenanceSpan) -> npt.NDArray[np.generic]:
    """What the span names; shorter if it reaches past the end."""
    return recorded[span.offset : span.offset + span.length]


def _check_tokens(
    field: str, given: npt.NDArray[np.generic], recorded: npt.NDArray[np.generic], span: ProvenanceSpan
) -> None:
    if not np.array_equal(given, recorded):
        part = "sampled tokens" if span.sampled else "prompt"
        raise RequestError(
            f"{field} holds other tokens than its provenance says: positions {span.offset} to "
            f"{span.offset + span.length - 1} of the {part} of sequence {span.sequence_id!r}"
        )
