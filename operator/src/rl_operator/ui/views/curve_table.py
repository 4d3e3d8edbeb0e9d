"""Which curves a run has: what each is computed from, how charts show them, and which are kept at the end. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from rl_operator.rollouts.metrics_history import NOT_KNOWN, Figures, Metrics

HELD_OUT: Final = "eval/percent_correct"
LOGPROB: Final = "logprobs/mean"
ENTROPY: Final = "train/entropy"
LENGTH: Final = "length/mean"

Figure = Callable[[Metrics], float | None]


def _of(name: str) -> Figure:
    return lambda metrics: metrics.get(name)


def _beside_mean(sign: int, bound: str) -> Figure:
    """One standard deviation from the mean reward, and not past the lowest or highest one."""

    def figure(metrics: Metrics) -> float | None:
        mean, deviation, limit = metrics.get("reward/mean"), metrics.get("reward/std"), metrics.get(bound)
        if mean is None or deviation is None:
            return None
        far = mean + sign * deviation
        return far if limit is None else max(far, limit) if sign < 0 else min(far, limit)

    return figure


def _entropy(metrics: Metrics) -> float | None:
    """Older trainers gave only the mean log probability."""
    if ENTROPY in metrics:
        return metrics[ENTROPY]
    mean = metrics.get(LOGPROB)
    return None if mean is None else -mean + 0.0


def _length(metrics: Metrics) -> float | None:
    """Older trainers gave it only per sequence."""
    if LENGTH in metrics:
        return metrics[LENGTH]
    tokens, sequences = metrics.get("batch/trained_tokens"), metrics.get("batch/trained_sequences")
    return None if tokens is None or not sequences else tokens / sequences


def _held_out(ending: str = "") -> Figure:
    """Its name may have a prefix: that of one of several environments."""
    name = HELD_OUT + ending

    def figure(metrics: Metrics) -> float | None:
        if name in metrics:
            return metrics[name]
        return next((value for key, value in metrics.items() if key.endswith(f"_{name}")), None)

    return figure


SECONDS: Final = {
    "waiting": "waiting for rollouts",
    "forward_backward": "gradient",
    "optim_step": "optimizer step",
    "snapshot": "new sampler",
    "preparing": "preparing",
    "reporting": "reporting",
    "saving": "checkpoint",
}
"""Parts of a step, `time/…`, from bottom to top."""

GROUP_MIX: Final = {"all_right": "all right", "mixed": "mixed", "all_wrong": "all wrong"}
"""Of an environment's groups, from bottom to top."""

OF_STEP: Final[Figures] = {
    "reward": _of("reward/mean"),
    "reward_low": _beside_mean(-1, "reward/min"),
    "reward_high": _beside_mean(1, "reward/max"),
    "loss": _of("train/loss"),
    "kl": _of("logprobs/kl_v2"),
    "kl_stale": _of("logprobs/kl_v2_stale"),
    "ess": _of("logprobs/ess"),
    "ess_stale": _of("logprobs/ess_stale"),
    "staleness": _of("staleness/mean"),
    "staleness_max": _of("staleness/max"),
    "staleness_allowed": _of("staleness/allowed"),
    "clipped": _of("batch/clipped_fraction"),
    "masked": _of("batch/masked_fraction"),
    "cost": _of("cost/total"),
    "entropy": _entropy,
    "length": _length,
    "length_right": _of("length/right"),
    "length_wrong": _of("length/wrong"),
    "grad_norm": _of("train/grad_norm"),
    **{mix: _of(f"groups/{mix}") for mix in GROUP_MIX},
    **{part: _of(f"time/{part}") for part in SECONDS},
}

OF_EVALUATION: Final[Figures] = {
    "held_out": _held_out(),
    "held_out_low": _held_out("_low"),
    "held_out_high": _held_out("_high"),
}

Table = Literal["steps", "evaluations"]


@dataclass(frozen=True, slots=True)
class Line:
    """`low` and `high`: the columns of its band. `dash`: lengths of strokes and gaps; empty: solid."""

    column: str
    label: str
    dash: tuple[int, ...] = ()
    low: str = ""
    high: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    title: str
    unit: str
    meaning: str
    lines: tuple[Line, ...]
    table: Table = "steps"
    stacked: bool = False

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)


DASHED: Final = (7, 4)
DOTTED: Final = (2, 3)

CHARTS: Final = (
    Chart(
        "reward", "Reward", "reward",
        "Mean over the rollouts of the batch, most of them of groups whose rewards differ. The band is one standard "
        "deviation, within the lowest and the highest reward.",
        (Line("reward", "mean", (), "reward_low", "reward_high"),),
    ),
    Chart(
        "held-out", "Held-out", "fraction",
        "On items that are never trained on. The band is the 95 % interval; the dotted line is the figure before "
        "training.",
        (Line("held_out", "now", (), "held_out_low", "held_out_high"), Line("baseline", "before training", DOTTED)),
        table="evaluations",
    ),
    Chart(
        "loss", "Loss", "per trained token",
        "The sum over all trained tokens, divided by their number. It need not fall.",
        (Line("loss", "loss"),),
    ),
    Chart(
        "kl", "KL of sampler and trainer", "nats per token",
        "Between the probabilities at sampling and at training. Fresh tokens should be near 0; for those of older "
        "weights it grows with staleness.",
        (Line("kl", "fresh tokens"), Line("kl_stale", "of older weights", DASHED)),
    ),
    Chart(
        "ess", "Effective sample size", "fraction",
        "1 if sampler and trainer agree; the smaller, the fewer tokens carry the step.",
        (Line("ess", "fresh tokens"), Line("ess_stale", "of older weights", DASHED)),
    ),
    Chart(
        "staleness", "Staleness", "policy steps",
        "Steps between the weights that sampled a token and those that are trained with it. Allowed: how old rollouts "
        "may become, by tinker.min_ess.",
        (
            Line("staleness_max", "oldest", DASHED),
            Line("staleness", "mean"),
            Line("staleness_allowed", "allowed", DOTTED),
        ),
    ),
    Chart(
        "clipped", "Clipped and masked", "fraction",
        "Of the trained tokens: clipped by the loss function, and masked by tinker.trust_region.",
        (Line("clipped", "clipped"), Line("masked", "masked", DASHED)),
    ),
    Chart(
        "entropy", "Entropy", "nats per token",
        "Estimated by minus the mean log probability of sampled tokens. Near 0 the policy explores nothing.",
        (Line("entropy", "entropy"),),
    ),
    Chart(
        "length", "Length", "tokens",
        "Tokens that were generated for a rollout. Right: with a score of at least 1.",
        (
            Line("length", "mean"),
            Line("length_right", "right", DASHED),
            Line("length_wrong", "wrong", DOTTED),
        ),
    ),
    Chart(
        "groups", "Groups", "fraction",
        "Of the last 100 that were made, whether or not they were trained. Mixed ones teach most: many that are all "
        "right or all wrong are too easy or too hard.",
        tuple(Line(mix, words) for mix, words in GROUP_MIX.items()),
        stacked=True,
    ),
    Chart(
        "grad-norm", "Gradient norm", "1",
        "Before clipping; only of backends that report it.",
        (Line("grad_norm", "norm"),),
    ),
    Chart(
        "seconds", "Seconds of a step", "s",
        "Where the time goes, one above the other. Waiting for rollouts: sampling and scoring are the bottleneck.",
        tuple(Line(part, words) for part, words in SECONDS.items()),
        stacked=True,
    ),
    Chart(
        "cost", "Cost", "in the prices' currency",
        "Of the run so far, all attempts and evaluations included.",
        (Line("cost", "so far"),),
    ),
)  # fmt: skip


Point = Mapping[str, float]
KeptTable = tuple[list[int], list[float], dict[str, list[float]]]
"""Steps, times (not known) and columns, as `rollouts.metrics_history` has them."""

KEPT: Final = {"reward": "rewardMean", "loss": "loss", "staleness": "staleness"}


def kept_tables(points: Sequence[Point]) -> dict[str, KeptTable]:
    """A point repeats the newest held-out figure: an evaluation is where it changes."""
    columns = {column: [point.get(name, NOT_KNOWN) for point in points] for column, name in KEPT.items()}
    evaluated = _evaluations(points)
    return {
        "steps": ([int(point["step"]) for point in points], [NOT_KNOWN] * len(points), columns),
        "evaluations": (
            [int(point["step"]) for point in evaluated],
            [NOT_KNOWN] * len(evaluated),
            {"held_out": [point["evalAccuracy"] for point in evaluated]},
        ),
    }


def _evaluations(points: Sequence[Point]) -> list[Point]:
    found: list[Point] = []
    for point in points:
        if "evalAccuracy" in point and (not found or found[-1]["evalAccuracy"] != point["evalAccuracy"]):
            found.append(point)
    return found
