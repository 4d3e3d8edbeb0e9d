"""The index always agrees with a scan of all runs."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import make_run

from rl_operator.api.run import TrainingRun
from rl_operator.api.status_fields import RunStatus
from rl_operator.cluster.cache.resource_cache import Key
from rl_operator.cluster.cache.unstarted import Unstarted

NEW = RunStatus()
WAITING = RunStatus(phase="Pending")
STARTED = RunStatus(phase="Starting", start_time="2026-05-01T12:00:00Z", attempt=1)
RESTORED = RunStatus(phase="Stopped", start_time="2026-05-01T12:00:00Z")
REFUSED_FOR_GOOD = RunStatus(phase="Failed")
STATUSES = (NEW, WAITING, STARTED, RESTORED, REFUSED_FOR_GOOD)


def run(name: str, status: RunStatus, parent: str | None = None) -> TrainingRun:
    made = make_run(**({"startFrom": {"run": parent}} if parent else {}))
    return made.with_changes(metadata=made.metadata.with_changes(name=name), status=status)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.one_of(st.none(), st.sampled_from(STATUSES)), st.sampled_from(["p", "q", None])
    )
)


@given(CHANGES)
def test_it_agrees_with_a_scan_of_all_runs(changes: list[tuple[str, RunStatus | None, str | None]]) -> None:
    index, held = Unstarted(), dict[Key, TrainingRun]()
    for name, status, parent in changes:
        key = ("team-a", name)
        held.pop(key, None)
        if status is not None:
            held[key] = run(name, status, parent)
        index.changed(key, held.get(key))
    unstarted = {k: r for k, r in held.items() if not r.status.finished and r.status.attempt is None}
    assert {r.key: r for r in index} == unstarted
    for parent in ("p", "q"):
        named = [k for k, r in unstarted.items() if r.spec.start_from and r.spec.start_from.run == parent]
        assert index.begin_from(("team-a", parent)) == tuple(sorted(named))
    assert index.begin_from(("team-b", "p")) == ()


def test_weights_given_by_path_have_no_parent_to_wait_for() -> None:
    index = Unstarted()
    made = make_run(startFrom={"statePath": "tinker://m/weights/000004"})
    index.changed(made.key, made)
    assert list(index) == [made]
