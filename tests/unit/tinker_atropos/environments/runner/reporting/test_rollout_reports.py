"""What waits to be shown is bounded, and counted."""

import threading

import numpy as np

from tinker_atropos.environments.runner.reporting.rollout_reports import (
    DROPPED_PER_STEP,
    MAX_GROUPS,
    MAX_LOST,
    MAX_WHY,
    RolloutReports,
)

GROUP = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1.0]}


def test_what_is_taken_waits_no_longer() -> None:
    reports = RolloutReports()
    reports.evaluated(3, GROUP, ("main", "hard"), greedy=True)
    reports.dropped(4, "equal", "all the same", GROUP)
    reports.lost("rollout", "timeout", "30 s", 7)
    groups, lost = reports.take()
    assert groups == [
        {"fate": "evaluated", "step": 3, "group": GROUP, "sets": ["main", "hard"], "greedy": True},
        {"fate": "dropped", "reason": "equal", "why": "all the same", "group": GROUP},
    ]
    assert lost == [{"what": "rollout", "reason": "timeout", "why": "30 s", "count": 1, "tokens": 7}]
    assert reports.take() == ([], [])


def test_losses_in_a_row_are_one() -> None:
    reports = RolloutReports()
    for tokens in (7, 0, 3):
        reports.lost("rollout", "timeout", "30 s", tokens)
    reports.lost("group", "timeout", "30 s")
    reports.lost("rollout", "timeout", "30 s")
    assert [(each["what"], each["count"], each.get("tokens")) for each in reports.take()[1]] == [
        ("rollout", 3, 10),
        ("group", 1, None),
        ("rollout", 1, None),
    ]


def test_of_many_dropped_groups_a_few_are_sent_whole_and_the_others_are_counted() -> None:
    reports = RolloutReports()
    for _ in range(DROPPED_PER_STEP + 5):
        reports.dropped(4, "equal", "all the same", GROUP)
    groups, lost = reports.take()
    assert len(groups) == DROPPED_PER_STEP
    assert lost == [{"what": "group", "reason": "equal", "why": "all the same", "count": 5}]
    reports.dropped(4, "equal", "all the same", GROUP)
    reports.dropped(5, "equal", "all the same", GROUP)
    groups, lost = reports.take()
    assert (len(groups), len(lost)) == (1, 1), "of each step"


def test_a_group_that_is_none_is_counted() -> None:
    reports = RolloutReports()
    reports.dropped(1, "wrong_size", "some are missing", "oops")
    assert reports.take() == ([], [{"what": "group", "reason": "wrong_size", "why": "some are missing", "count": 1}])


def test_a_trainer_that_takes_nothing_costs_bounded_memory() -> None:
    reports = RolloutReports()
    for number in range(2 * MAX_LOST):
        reports.lost("rollout", "raised", f"{number}: " + "x" * 10_000)
    groups, lost = reports.take()
    assert (len(groups), len(lost)) == (0, MAX_LOST)
    assert {len(each["why"]) for each in lost} == {MAX_WHY}


def test_groups_that_find_no_room_are_counted() -> None:
    """A mean over those that were kept would be no accuracy: readers must know that there were more."""
    reports = RolloutReports()
    for _ in range(MAX_GROUPS + 10):
        reports.evaluated(3, GROUP)
    reports.dropped(4, "equal", "all alike", GROUP)
    groups, lost = reports.take()
    assert len(groups) == MAX_GROUPS
    assert [(each["reason"], each["count"]) for each in lost] == [("not_kept", 10), ("equal", 1)]


def test_a_sentence_with_bytes_that_are_not_text() -> None:
    reports = RolloutReports()
    reports.lost("rollout", "raised", "no file b\udce4r")
    reports.lost("rollout", "raised", "no file b\udce4r")
    assert [(each["why"], each["count"]) for each in reports.take()[1]] == [("no file b?r", 2)]


def test_nothing_is_lost_between_two_threads() -> None:
    reports, taken, count = RolloutReports(), [], 3000
    done = threading.Event()

    def take() -> None:
        while not done.is_set():
            taken.append(reports.take())

    taking = threading.Thread(target=take)
    taking.start()
    for step in range(count):
        reports.lost("rollout", "raised", "no", 1)
        if not step % 10:
            reports.evaluated(step, {"tokens": np.ones((1, 2))})
    done.set()
    taking.join(60)
    taken.append(reports.take())
    assert sum(each["count"] for _, lost in taken for each in lost) == count
    assert sum(each["tokens"] for _, lost in taken for each in lost) == count
    assert [group["step"] for groups, _ in taken for group in groups] == list(range(0, count, 10))
