"""When a pod counts as lost."""

from datetime import timedelta

import pytest
from tests.unit.rl_operator.status.builders import NOW, make_pod, ready, result, terminated

from rl_operator.status.attempt.pod_cleanup import LOST_AFTER, lost_at, with_loss
from rl_operator.status.observed.observation import PodObservation, format_time

DUE = NOW - LOST_AFTER
DELETING = make_pod(ready(), ready(), deleting=True, delete_by=format_time(DUE))


def test_a_minute_after_it_should_have_ended() -> None:
    assert lost_at(DELETING) == NOW
    assert not with_loss(DELETING, NOW - timedelta(seconds=1)).over
    lost = with_loss(DELETING, NOW)
    assert (lost.lost, lost.over) == (True, True)


NEVER = {
    "it is not being deleted": make_pod(ready(), ready()),
    "it is over": make_pod(
        terminated(0), terminated(0, result()), phase="Succeeded", deleting=True, delete_by=format_time(DUE)
    ),
    "no node has it": make_pod(ready(), ready(), node="", deleting=True, delete_by=format_time(DUE)),
}


@pytest.mark.parametrize("pod", NEVER.values(), ids=NEVER)
def test_pods_that_are_never_lost(pod: PodObservation) -> None:
    assert lost_at(pod) is None
    assert not with_loss(pod, NOW + timedelta(days=1)).lost
