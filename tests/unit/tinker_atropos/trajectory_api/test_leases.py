import pytest

from tinker_atropos.trajectory_api.leases import Lease, LeaseView, view


@pytest.mark.parametrize(
    ("lease", "silence", "expected"),
    [
        (None, 0, LeaseView("absent")),
        (("starting", None), 15, LeaseView("starting")),
        (("working", None), 15, LeaseView("working")),
        (("working", None), 15.1, LeaseView("lost", "no heartbeat from the trainer for more than 15 seconds")),
        (("starting", None), 99, LeaseView("lost", "no heartbeat from the trainer for more than 15 seconds")),
        (("done", None), 10_000, LeaseView("done")),
        (("failed", "out of memory"), 10_000, LeaseView("failed", "out of memory")),
    ],
)
def test_what_the_peer_is_told(lease, silence, expected) -> None:
    held = None if lease is None else Lease(*lease, ttl_seconds=15, renewed_at=100)
    assert view("trainer", held, 100 + silence) == expected


@pytest.mark.parametrize(
    ("state", "gone"),
    [("absent", False), ("starting", False), ("working", False), ("done", False), ("failed", True), ("lost", True)],
)
def test_gone_means_without_order(state, gone) -> None:
    assert LeaseView(state).gone is gone
