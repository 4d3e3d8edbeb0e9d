"""What a thousand histories cost."""

import random

from rl_operator.metrics.polled_history import PolledHistory
from rl_operator.status.observed.history import HISTORY_METRICS, MAX_POINTS, read_points
from rl_operator.status.observed.observation import TrainerStatus

ACTIVE_RUNS = 1000
MOST_BYTES = 10 * 10**6


def test_a_thousand_full_histories_take_less_than_10_mb() -> None:
    """Noise, which does not compress: six metrics of four digits in each of 500 points."""
    noise = random.Random(7)
    points = [{"step": step, **{name: noise.random() for name in HISTORY_METRICS}} for step in range(1, MAX_POINTS + 1)]
    series = PolledHistory()
    series.take(TrainerStatus(step=MAX_POINTS, total_steps=MAX_POINTS), read_points({"points": points}))
    assert len(series.points) == MAX_POINTS
    assert series.size * ACTIVE_RUNS < MOST_BYTES


def test_a_run_of_unknown_length_is_read_again_at_each_step() -> None:
    series = PolledHistory()
    assert not series.due(TrainerStatus(step=0))
    assert series.due(TrainerStatus(step=1))
    series.take(TrainerStatus(step=1), read_points({"points": [{"step": 1}]}))
    assert not series.due(TrainerStatus(step=1))
    assert series.due(TrainerStatus(step=2))
