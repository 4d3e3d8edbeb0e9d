"""Compute a trained step again, from its kept rollouts and the state before it, beside what was recorded.

It is the trainer's own update, in a training run of its own that is closed afterwards and saves nothing. Files keep
logprobs with 5 decimals, and advantages as the loss saw them: with a teacher's terms and the distance from the base
model, so that neither is asked again.

Axes: _T tokens of one sequence, _N trained tokens of the batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from rl_contract.rollout_records import GroupRecord, RolloutRecord, SequenceRecord, StepRecord, read_record
from tinker_atropos.config.run_config import RunConfig, load_config
from tinker_atropos.errors import ConfigError
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.backend.answers import Patience
from tinker_atropos.trainer.backend.backend import TinkerBackend
from tinker_atropos.trainer.backend.checkpoints import StoredCheckpoint, StoredCheckpoints, states_of
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.data.datums import build_batch, of_trained
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, TokenSequence
from tinker_atropos.trainer.reporting.step_metrics import training_metrics
from tinker_atropos.trainer.update.optimizer import with_learning_rate
from tinker_atropos.trainer.update.policy_update import Updated, update_policy
from tinker_atropos.weights.backend_session import session

PURPOSE: Final = {"purpose": "replay"}
"""The metadata of its training run: it is not taken for the run's."""

ROUNDING, ROUNDING_AGAIN = 2e-5, 2e-4
"""Of a logprob: half a unit of its last decimal in the file, and what float32 adds to it; and under weights that were
trained again on such logprobs: Adam's step is as long for a gradient near 0, whose sign may change.
"""

GAP: Final = "logprobs/gap"
FIGURES: Final = {
    "train/loss": "loss per token",
    "train/grad_norm": "gradient norm",
    "logprobs/mean_training": "mean logprob",
}


@dataclass(frozen=True, slots=True)
class KeptStep:
    record: StepRecord
    groups: Sequence[GroupRecord]

    @property
    def changed_weights(self) -> bool:
        return any(group.fate == "trained" for group in self.groups)


@dataclass(frozen=True, slots=True)
class Replayed:
    """`state`: what was loaded, the weights after `since` steps; None: the run's beginning. `figures` by metric:
    as `recorded`, and `now`; None: the backend did not say. `largest` and `mean`: differences of the trained tokens'
    logprobs. `gap`: how far sampler and trainer were apart on equal weights.
    """

    step: int
    attempt: int
    state: str | None
    since: int
    rollouts: int
    tokens: int
    figures: dict[str, dict[str, float | None]]
    largest: float
    mean: float
    gap: float | None

    @property
    def again(self) -> int:
        """Steps that were trained again before this one."""
        return self.step - 1 - self.since

    @property
    def equal(self) -> bool:
        return self.largest <= (ROUNDING_AGAIN if self.again else ROUNDING)

    @property
    def verdict(self) -> str:
        cause = "training again on rounded files explains" if self.again else "the rounding of the files"
        if self.equal:
            return f"Equal: no logprob differs by more than {cause}."
        known = "" if self.gap is None else f"; sampler and trainer were {self.gap:.1g} apart on equal weights ({GAP})"
        return (
            f"Differs by more than {cause}{known}: the backend does not compute the same twice, or "
            f"weights, rollouts or settings are not those of the step."
        )

    @property
    def text(self) -> str:
        state = f"the state after step {self.since} ({self.state})" if self.state else "the run's beginning"
        steps = "step" if self.again == 1 else "steps"
        again = f", and {self.again} {steps} trained again" if self.again else ""
        rows = [(name, *map(_number, self.figures[metric].values())) for metric, name in FIGURES.items()]
        table = [f"{name:<16}{before:>14}{now:>14}" for name, before, now in [("", "recorded", "now"), *rows]]
        trained = f"logprobs of {self.tokens:,} tokens of {self.rollouts:,} rollouts"
        apart = f"{trained} differ by at most {self.largest:.2g}, and by {self.mean:.2g} on average"
        head = f"step {self.step} of attempt {self.attempt}, from {state}{again}"
        return "\n".join([head, *table, apart, self.verdict])

    def to_wire(self) -> dict[str, object]:
        return {**asdict(self), "again": self.again, "equal": self.equal, "verdict": self.verdict}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.8g}"


async def replay(
    config_file: Path, folder: Path, step: int, settings: Settings, say: Callable[[str], None]
) -> Replayed:
    """`folder` has a file STEP.jsonl for the step, and for each before it that may be trained again; `settings` say
    what the run began with. Raises ConfigError for a step that cannot be computed again, and other RunErrors.
    """
    config = _as_kept(with_learning_rate(load_config(config_file)))
    kept = read_step(folder, step)
    if not kept.changed_weights:
        raise ConfigError(f"step {step} changed no weights: none of its groups had an advantage")
    first = next(number for number in range(step, 0, -1) if not (folder / f"{number - 1}.jsonl").exists())
    async with session("replay") as service:
        backend = TinkerBackend(service, config.tinker)
        state = await _state_before(kept.record, first, Patience.of(config.tinker))
        training = await _opened(backend, config, state, settings)
        for number in range(state.step + 1 if state else 1, step):
            if (before := read_step(folder, number)).changed_weights:
                say(f"training step {number} again")
                await _updated(training, config, before)
        updated = await _updated(training, config, kept)
    return _compared(kept, updated, state)


def read_step(folder: Path, step: int) -> KeptStep:
    """Raises ConfigError for a step that was not trained, or of which files do not have everything."""
    records = [read_record(line) for line in (folder / f"{step}.jsonl").read_bytes().splitlines()]
    record = next((each for each in records if isinstance(each, StepRecord)), None)
    if record is None:
        raise ConfigError(f"step {step} was not trained: of it there is only what was evaluated, dropped or lost")
    if "distil/forward_kl" in record.metrics:
        raise ConfigError(
            f"step {step} cannot be computed again: it was trained on a teacher's likeliest tokens "
            f"(env.teacher_top_k), and rollout files do not keep those"
        )
    groups = [each for each in records if isinstance(each, GroupRecord) and each.fate in ("trained", "no_advantage")]
    return KeptStep(record, groups)


def _as_kept(config: RunConfig) -> RunConfig:
    """What is in the kept advantages is not added again, and the base model is not asked for an evaluation."""
    tinker = config.tinker.model_copy(update={"kl_penalty_coef": 0.0})
    return config.model_copy(update={"tinker": tinker, "env": config.env.model_copy(update={"steps_per_eval": 0})})


async def _state_before(record: StepRecord, first: int, patience: Patience) -> StoredCheckpoint | None:
    """The newest state that steps from `first` on lead from to this one; None: the run's beginning."""
    listed = states_of(await StoredCheckpoints(patience).list(), record.uid)
    lineage = [state for state in listed if state.attempt <= record.attempt]
    near = [state for state in lineage if first - 1 <= state.step < record.step]
    if near or first == 1:
        return max(near, key=lambda state: (state.step, state.attempt), default=None)
    there = ", ".join(str(step) for step in sorted({state.step for state in lineage})) or "none"
    needed = f"step {first - 1}" if first == record.step else f"one of the steps {first - 1} to {record.step - 1}"
    raise ConfigError(
        f"step {record.step} cannot be computed again: that takes the state after {needed}, and of this run the "
        f"backend has those after: {there}. Steps can be computed that follow one of these, as far as the rollouts "
        f"between are kept and --retrain allows"
    )


async def _opened(
    backend: TinkerBackend, config: RunConfig, state: StoredCheckpoint | None, settings: Settings
) -> Training:
    if state is not None:
        return await backend.load(state.path, PURPOSE, with_optimizer=True)
    if settings.start_from is not None:
        return await backend.load(settings.start_from, PURPOSE, with_optimizer=settings.start_from_optimizer)
    return await backend.create(config.base_model, PURPOSE)


async def _updated(training: Training, config: RunConfig, kept: KeptStep) -> Updated:
    batch = build_batch([read_kept_group(group) for group in kept.groups], config.tinker)
    return await update_policy(training, batch, config, kept.record.step - 1)


def _compared(kept: KeptStep, updated: Updated, state: StoredCheckpoint | None) -> Replayed:
    batch, record = updated.batch, kept.record
    now = updated.metrics | training_metrics(batch, updated.logprobs, updated.loss_sum, record.step - 1)
    rows = [sequence.trained_logprobs or () for group in kept.groups for _, sequence in _sequences(group)]
    recorded_N = np.array([value for row in rows for value in row if value is not None], np.float64)
    now_N = of_trained(batch.datums, updated.logprobs)
    if len(recorded_N) != len(now_N):
        raise ConfigError(
            f"step {record.step} cannot be compared: {len(recorded_N)} tokens of its rollouts were trained, and with "
            f"these settings {len(now_N)} are: the files are damaged, or of another version"
        )
    return Replayed(
        step=record.step,
        attempt=record.attempt,
        state=state.path if state else None,
        since=state.step if state else 0,
        rollouts=batch.trained_rollouts,
        tokens=batch.trained_tokens,
        figures={name: {"recorded": record.metrics.get(name), "now": now.get(name)} for name in FIGURES},
        largest=float(np.abs(recorded_N - now_N).max()),
        mean=float(np.abs(recorded_N - now_N).mean()),
        gap=record.metrics.get(GAP),
    )


def _sequences(group: GroupRecord) -> Iterator[tuple[int, SequenceRecord]]:
    """With the number of its rollout."""
    return ((number, each) for number, rollout in enumerate(group.rollouts) for each in rollout.sequences)


def read_kept_group(record: GroupRecord) -> Group:
    """The group that `rollout_lines.group_record` wrote, as far as an update needs it."""
    kept = list(_sequences(record))
    sequences = [read_kept_sequence(record.prompt.tokens, record.rollouts[number], each) for number, each in kept]
    return Group(tuple(sequences), np.array([number for number, _ in kept], np.int64))


def read_kept_sequence(prompt: Sequence[int], rollout: RolloutRecord, kept: SequenceRecord) -> TokenSequence:
    """Logprobs that are not the sampler's were recomputed by the policy of the step: the trainer's stand for them."""
    given, unknown = len(prompt), [None] * len(kept.tokens)
    fates_T = _spread(kept.fates, np.full(given + len(kept.tokens), "prompt", object), given)
    logprobs_T, trained_T, own_T = (
        np.array([None] * given + [*(values or unknown)], np.float64)
        for values in (kept.logprobs, kept.trained_logprobs, kept.advantages)
    )
    return TokenSequence(
        tokens_T=np.array([*prompt, *kept.tokens], np.int64),
        generated_T=(fates_T != "prompt") & (fates_T != "not_sampled"),
        logprobs_T=np.where(np.isnan(logprobs_T), trained_T, logprobs_T),
        policy_step_T=_spread(kept.policy_steps, np.full(len(fates_T), UNKNOWN_STEP, np.int64), given),
        score=0.0 if rollout.reward is None else rollout.reward,
        advantages_T=np.full(len(fates_T), rollout.advantage or 0.0) if kept.advantages is None else own_T,
        truncated=any(fate == "truncated" for each in rollout.sequences for _, _, fate in each.fates),
    )


def _spread(runs: Sequence[tuple[int, int, Any]], values_T: Any, given: int) -> Any:
    """The values with those of the runs, which count from behind the `given` tokens."""
    for start, end, value in runs:
        values_T[given + start : given + end] = value
    return values_T
