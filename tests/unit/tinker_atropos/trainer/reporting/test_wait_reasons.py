from dataclasses import replace

import pytest

from tinker_atropos.trainer.reporting.wait_reasons import GroupsMade, WaitForBatch, slow_call, why_no_batch
from tinker_atropos.trainer.trajectories.api_client import Peer

WAIT = WaitForBatch(
    seconds=61.4,
    environment=Peer(state="working", reason="making rollouts"),
    made=GroupsMade(kept=2, equal=5),
    seconds_without_sample=0.0,
    queued=2,
    group_rollouts=8,
    batch_rollouts=64,
)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"environment": Peer()}, "no environment has come yet"),
        ({"environment": Peer(state="away", reason="no environment has been live for 9 s")}, "no environment has been"),
        ({"environment": Peer(state="starting")}, "the environment is starting"),
        ({"environment": Peer(state="starting", reason="setting up")}, "the environment is setting up"),
        ({"environment": Peer(state="working", reason="evaluating step 5")}, "the environment is evaluating step 5"),
        (
            {"environment": Peer(state="working", reason="waiting for a sandbox")},
            "the environment is waiting for a sandbox",
        ),
        (
            {
                "environment": Peer(state="working", reason="waiting for a sandbox"),
                "made": GroupsMade(kept=0, equal=32),
            },
            "every one of the last 20 groups had equal scores",
        ),
        (
            {"environment": Peer(state="working", reason="making groups that all fail: KeyError: 'x'")},
            "the environment is making groups that all fail: KeyError: 'x'",
        ),
        ({"made": GroupsMade(kept=0, equal=32)}, "every one of the last 20 groups had equal scores"),
        (
            {"made": GroupsMade(kept=0, withheld=137)},
            "the environment returned none of the last 100 groups that it made",
        ),
        ({"made": GroupsMade(kept=0, equal=32, withheld=10)}, "every one of the last 20 groups had equal scores"),
        ({"made": GroupsMade(kept=1, withheld=137)}, "about 16 of 64 rollouts are there"),
        ({"seconds_without_sample": None}, "the environment has asked for no sample yet"),
        ({"seconds_without_sample": 45.2}, "the environment has asked for no sample for more than 30 s"),
        ({}, "about 16 of 64 rollouts are there, and the environment is sampling"),
    ],
)
def test_the_reason_of_a_wait(changes, reason) -> None:
    sentence = why_no_batch(replace(WAIT, **changes))
    assert sentence is not None
    assert sentence.startswith(f"Waiting for a batch for more than 1 min: {reason}")
    assert sentence.endswith(".")


def test_a_wait_of_a_day_is_logged_in_a_few_sentences() -> None:
    """The watcher of `/status` writes every change somewhere."""
    waits = (replace(WAIT, seconds=float(s), seconds_without_sample=float(s), queued=0) for s in range(10, 86_400, 7))
    assert len({why_no_batch(wait) for wait in waits}) <= 12


def test_short_waits_are_normal() -> None:
    assert why_no_batch(replace(WAIT, seconds=9.9)) is None


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (GroupsMade(3, 10), GroupsMade(3, 14), GroupsMade(0, 4)),
        (GroupsMade(3, 10, 5), GroupsMade(3, 10, 9), GroupsMade(0, 0, 4)),
        (GroupsMade(3, 10), GroupsMade(1, 2), GroupsMade(1, 2)),  # a restarted environment
    ],
)
def test_only_groups_of_this_wait_explain_it(before, now, expected) -> None:
    assert now.since(before) == expected


def test_a_backend_call_is_named_once_it_takes_too_long() -> None:
    assert slow_call(("optim_step", 100.0), now=135.0) == "Waiting for the backend for more than 30 s: optim_step."
    assert slow_call(("optim_step", 100.0), now=105.0) is None
    assert slow_call(None, now=100.0) is None
