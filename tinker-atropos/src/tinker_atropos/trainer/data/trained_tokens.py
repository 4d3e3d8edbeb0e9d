"""The trained tokens of several datums as one array. Pure. Axis: _N all of them, sequence by sequence.

What is computed for each sequence by itself costs more in calls than in arithmetic: a batch may have thousands.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tinker_atropos.arrays import Floats, Ints
from tinker_atropos.trainer.data.datums import Datum

Scalar = TypeVar("Scalar", np.int64, np.float64)


def of_trained(datums: Sequence[Datum], rows: Iterable[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """Of a row for each datum, as long as its own arrays: the values of the trained tokens, [N]."""
    trained = np.concatenate([datum.trained_T for datum in datums])
    found_N: npt.NDArray[Scalar] = np.concatenate(list(rows))[trained]
    return found_N


def policy_steps(datums: Sequence[Datum]) -> Ints:
    """That sampled the trained tokens, [N]."""
    return of_trained(datums, (datum.policy_step_T for datum in datums))


def log_ratios(datums: Sequence[Datum], logprobs: Sequence[Floats]) -> Floats:
    """Of the trained tokens, [N]: log p - log q. `logprobs` are the trainer's, for each datum."""
    return of_trained(datums, logprobs) - of_trained(datums, (datum.logprobs_T for datum in datums))


def lengths(datums: Sequence[Datum]) -> Ints:
    """How many tokens of each datum are trained: one at least."""
    return np.array([np.count_nonzero(datum.trained_T) for datum in datums])


def sequence_means(values_N: Floats, lengths_S: Ints) -> Floats:
    """The mean over the trained tokens of each datum."""
    starts_S = np.cumsum(lengths_S) - lengths_S
    means_S: Floats = np.add.reduceat(values_N, starts_S) / lengths_S
    return means_S
