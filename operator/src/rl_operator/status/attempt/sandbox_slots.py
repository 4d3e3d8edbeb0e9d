"""Sandbox pods: which there should be. Each serves one rollout, ends by itself, and is replaced.

No state is kept: the last pod of a slot that ended stays until its successor exists, which counts on from it.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from rl_operator.api.names import SANDBOX_CONTAINER
from rl_operator.api.status_fields import SandboxPods
from rl_operator.backoff import due_after, pause_seconds
from rl_operator.status.attempt.environment_slots import Plan, Slot, is_over
from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import PodObservation, format_time
from rl_operator.status.text.sentences import clean

FAILED_SECONDS: Final = 10.0
"""Before the successor of one that did not end in order: out of memory, out of disk, or with an image that cannot run.
It doubles with each that fails before another one of its slot runs.
"""

KEPT_FAILURES: Final = 5
"""Failed pods of a slot that are kept for their logs until another one runs there."""

MAY_BE_THE_AGENTS: Final = frozenset({0, 1, 137, 143})
"""Exit codes of a server that has run: what the pod says of its end may be a command's words."""


def observed_sandboxes(view: View) -> SandboxPods | None:
    """`status.sandboxes` as it is now. Its time is that of the last change: they change with each rollout, and are
    written no more often than other progress. At the end none is ready, and the count outlives the pods.
    """
    asked = view.run.spec.sandbox
    if asked is None or not view.started:
        return None
    mine = view.of_attempt(view.sandboxes)
    running = sum(1 for pod in mine if view.training and not pod.over and not pod.deleting and _is_ready(pod))
    newest = {slot: max(p.incarnation for p in mine if p.slot == slot) for slot in {pod.slot for pod in mine}}
    before = view.run.status.sandboxes
    counted = sum(newest.values())
    if before and not view.training:
        counted = max(counted, before.replaced)
    told_at = before.observed_at if before else None
    found = SandboxPods(desired=asked.size, ready=running, replaced=counted, observed_at=told_at)
    return found if found == before else found.with_changes(observed_at=format_time(view.now))


def plan_sandboxes(view: View) -> Plan:
    """While the run's pod trains: one pod in each slot. Once the attempt is over: none."""
    if view.run.spec.sandbox is None or is_over(view) or not view.training:
        return Plan(delete=tuple(pod for pod in view.sandboxes if not pod.deleting))
    size = view.run.spec.sandbox.size
    return Plan.of(view, _missing(view, size), _needless(view, size))


def failed_sandbox(view: View) -> str:
    """How the pod that failed last did so; empty if none of those that are left has."""
    failed = [pod for pod in view.of_attempt(view.sandboxes) if _has_failed(pod)]
    if not failed:
        return ""
    pod = max(failed, key=_ended)
    # The one that ended first, which may be the one that brings the tools.
    container = next((each for each in pod.containers if each.exit_code), None)
    if container is None:
        return f"pod {pod.name} has failed ({clean(pod.message) or pod.reason}), and is replaced."
    said = "" if container.exit_code in MAY_BE_THE_AGENTS else f": {container.message}"
    how = f"{container.name}: {container.reason}, exit code {container.exit_code}{said}"
    return f"pod {pod.name} has failed ({clean(how)}), and is replaced."


def _missing(view: View, size: int) -> Iterator[tuple[Slot, datetime]]:
    """Slots whose newest pod has ended, and when each may be filled."""
    for slot, pods in _by_slot(view, size).items():
        newest = pods[-1] if pods else None
        if newest is None:
            yield Slot(slot, 0), view.now
        elif newest.over or newest.deleting:
            yield Slot(slot, newest.incarnation + 1), _due(pods, view)


def _needless(view: View, size: int) -> Iterator[PodObservation]:
    """Pods of other attempts, of slots that there are not, and those that have a successor; of failed ones, once it
    runs.
    """
    kept = {pod.uid for pods in _by_slot(view, size).values() for pod in (*pods[-1:], *_recent_failures(pods))}
    yield from (pod for pod in view.sandboxes if pod.uid not in kept)


def _recent_failures(pods: list[PodObservation]) -> list[PodObservation]:
    """Failures of one slot since the last pod that ran."""
    failed: list[PodObservation] = []
    for pod in reversed(pods):
        if _has_failed(pod):
            failed.append(pod)
        elif pod.over or _is_ready(pod):
            break
    return failed[:KEPT_FAILURES]


def _due(pods: list[PodObservation], view: View) -> datetime:
    failures = len(_recent_failures(pods))
    if pods[-1].deleting or not failures:
        return view.now
    return due_after(_ended(pods[-1]), pause_seconds(FAILED_SECONDS, failures), view.now)


def _has_failed(pod: PodObservation) -> bool:
    container = pod.container(SANDBOX_CONTAINER)
    return pod.over and not pod.deleting and not (container is not None and container.exit_code == 0)


def _ended(pod: PodObservation) -> datetime:
    return max((each.finished_at for each in pod.containers if each.finished_at), default=pod.created)


def _by_slot(view: View, size: int) -> dict[int, list[PodObservation]]:
    """The pods of this attempt in each slot, oldest first."""
    mine = sorted(view.of_attempt(view.sandboxes), key=lambda pod: pod.incarnation)
    return {slot: [pod for pod in mine if pod.slot == slot] for slot in range(size)}


def _is_ready(pod: PodObservation) -> bool:
    container = pod.container(SANDBOX_CONTAINER)
    return container is not None and container.state == "Ready"
