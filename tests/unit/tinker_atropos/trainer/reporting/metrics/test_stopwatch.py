import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.trainer.reporting.metrics.stopwatch import PARTS, Stopwatch


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_parts_of_a_lap_have_their_given_names() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 10
    watch.spent("preparing", {"waiting": 7.5})
    clock.now += 5
    watch.spent("preparing", {"forward_backward": 3.0, "optim_step": 1.0, "snapshot": 0.5})
    clock.now += 0.25
    assert watch.lap() == {
        "time/waiting": 7.5,
        "time/base_logprobs": 0.0,
        "time/forward": 0.0,
        "time/preparing": 3.25,
        "time/forward_backward": 3.0,
        "time/optim_step": 1.0,
        "time/snapshot": 0.5,
        "time/reporting": 0.0,
        "time/saving": 0.0,
        "time/step": 15.25,
        "time/own_share": 3.25 / 15.25,
    }
    clock.now += 2
    watch.spent("reporting")
    assert watch.lap()["time/reporting"] == 2.0  # after its step's metrics: named in the next lap


def test_the_own_share_is_what_neither_rollouts_nor_the_backend_account_for() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    for part, seconds in {"waiting": 4.0, "preparing": 0.5, "forward_backward": 3.0, "optim_step": 1.0}.items():
        clock.now += seconds
        watch.spent(part)
    for part, seconds in {"snapshot": 0.5, "reporting": 0.25, "saving": 0.75}.items():
        clock.now += seconds
        watch.spent(part)
    assert watch.lap()["time/own_share"] == 0.75 / 10
    assert watch.lap()["time/own_share"] == 0.0  # nothing has happened since


@given(st.lists(st.tuples(st.sampled_from([*PARTS, "lap"]), st.floats(0, 1e4)), max_size=30))
def test_every_second_has_a_name(spent: list[tuple[str, float]]) -> None:
    clock = Clock()
    watch, named = Stopwatch(clock), 0.0
    for part, seconds in [*spent, ("lap", 1.0)]:
        clock.now += seconds
        if part != "lap":
            watch.spent(part)
            continue
        lap = watch.lap()
        assert sum(lap[f"time/{part}"] for part in PARTS) == pytest.approx(lap["time/step"])
        assert 0.0 <= lap["time/own_share"] <= 1.0 + 1e-9
        named += lap["time/step"]
    assert named == pytest.approx(clock.now - 100.0)
