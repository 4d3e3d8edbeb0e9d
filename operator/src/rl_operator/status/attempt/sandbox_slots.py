"""Sandbox pods: which there should be. Each serves one rollout, ends by itself, and is replaced.

No state is kept: the last pod of a slot that ended stays until its successor exists, which counts on from it.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from rl_operator.api.names import SANDBOX_CONTAINER
from rl_operator.api.run import SandboxPods
from rl_operator.status.attempt.environment_slots import Plan, Slot, is_over
from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import PodObservation
from rl_operator.status.text.sentences import clean

FAILED_PAUSE: Final = timedelta(seconds=10)
"""Before the successor of one that did not end in order: out of memory, out of disk, or with an image that cannot run.
"""


def observed_sandboxes(view: View) -> SandboxPods | None:
    """`status.sandboxes` as it is now."""
    asked = view.run.spec.sandbox
    if asked is None or not view.started:
        return None
    mine = _mine(view)
    running = sum(1 for pod in mine if not pod.over and not pod.deleting and _is_ready(pod))
    newest = {slot: max(p.incarnation for p in mine if p.slot == slot) for slot in {pod.slot for pod in mine}}
    before = view.run.status.sandboxes
    counted = sum(newest.values()) if view.training else (before.replaced if before else 0)
    return SandboxPods(desired=asked.size, ready=running, replaced=counted)


def plan_sandboxes(view: View) -> Plan:
    """While the run's pod trains: one pod in each slot. Once the attempt is over: none."""
    if view.run.spec.sandbox is None or is_over(view) or not view.training:
        return Plan(delete=tuple(pod for pod in view.sandboxes if not pod.deleting))
    missing = tuple(_missing(view, view.run.spec.sandbox.size))
    return Plan(
        create=tuple(place for place, due in missing if due <= view.now),
        delete=tuple(pod for pod in _needless(view, view.run.spec.sandbox.size) if not pod.deleting),
        due=tuple(due for _, due in missing if due > view.now),
    )


def live_sandboxes(view: View) -> tuple[PodObservation, ...]:
    """The pods of this attempt that run or will run."""
    return tuple(pod for pod in _mine(view) if not pod.over and not pod.deleting)


def failed_sandbox(view: View) -> str:
    """How the pod that failed last did so; empty if none of those that are left has."""
    failed = [pod for pod in _mine(view) if pod.over and not pod.deleting and not _ended_in_order(pod)]
    if not failed:
        return ""
    pod = max(failed, key=_ended)
    container = pod.container(SANDBOX_CONTAINER)
    how = f"{container.reason}, exit code {container.exit_code}: {container.message}" if container else pod.message
    return f"pod {pod.name} has failed ({clean(how).strip(' :') or pod.reason}), and is replaced."


def _missing(view: View, size: int) -> Iterator[tuple[Slot, datetime]]:
    """Slots whose newest pod has ended, and when each may be filled."""
    newest = _newest(view)
    for slot in range(size):
        pod = newest.get(slot)
        if pod is None:
            yield Slot(slot, 0), view.now
        elif pod.over or pod.deleting:
            yield Slot(slot, pod.incarnation + 1), _due(pod, view.now)


def _needless(view: View, size: int) -> Iterator[PodObservation]:
    """Of other attempts, of slots that there are not, and those that have a successor."""
    newest = _newest(view)
    for pod in view.sandboxes:
        if pod.attempt != view.run.status.attempt or pod.slot >= size or pod is not newest.get(pod.slot):
            yield pod


def _due(pod: PodObservation, now: datetime) -> datetime:
    if pod.deleting or _ended_in_order(pod):
        return now
    return min(_ended(pod) + FAILED_PAUSE, now + FAILED_PAUSE)  # an end in the future: a clock was set back


def _ended_in_order(pod: PodObservation) -> bool:
    container = pod.container(SANDBOX_CONTAINER)
    return container is not None and container.exit_code == 0


def _ended(pod: PodObservation) -> datetime:
    container = pod.container(SANDBOX_CONTAINER)
    return (container.finished_at if container else None) or pod.created


def _newest(view: View) -> dict[int, PodObservation]:
    return {pod.slot: pod for pod in sorted(_mine(view), key=lambda pod: pod.incarnation)}


def _mine(view: View) -> tuple[PodObservation, ...]:
    return tuple(pod for pod in view.sandboxes if pod.attempt == view.run.status.attempt)


def _is_ready(pod: PodObservation) -> bool:
    container = pod.container(SANDBOX_CONTAINER)
    return container is not None and container.state == "Ready"
