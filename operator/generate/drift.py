"""What comes of it when somebody else deletes, edits or takes what belongs to a run: one rule, as data.

The rule: what can be put back without guessing is put back; what somebody edited stays as it is; what is somebody
else's is never taken over; and whatever is done, nothing starts twice and nothing goes on unwatched. Each row has a
test of its own on a real API server (tests/integration/cluster/test_drift.py, by `id`).
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody did, and what comes of it."""

    id: str
    what: str
    follows: str


OTHER_HANDS: Final[tuple[Deed, ...]] = (
    # --- deleted --------------------------------------------------------------------------------------------------
    Deed(
        "config-deleted",
        "The run's ConfigMap is deleted.",
        "It is created again at once if the same is rendered again.",
    ),
    Deed(
        "config-lost",
        "The run's ConfigMap is deleted after the runtime or environment was edited.",
        "The pod that runs goes on, and the message says so. There is no further attempt: the run fails as ConfigLost"
        " and keeps its checkpoint.",
    ),
    Deed("network-deleted", "The Service or a NetworkPolicy is deleted.", "It is created again while the run trains."),
    Deed("pod-deleted", "The run's pod is deleted.", "The trainer saves; the attempt ends as PodDeleted, uncounted."),
    Deed(
        "environment-deleted", "An environment's pod is deleted.", "Another one takes its place; no failure is counted."
    ),
    Deed("series-deleted", "The ConfigMap with the series is deleted.", "It stays away: a series is advisory."),
    Deed(
        "applied-again",
        "The run is deleted and applied again under its name.",
        "The new run has its own children, named by its uid; what is left of the old one is let go.",
    ),
    # --- edited ---------------------------------------------------------------------------------------------------
    Deed("network-edited", "The Service or a NetworkPolicy is edited.", "It stays as it is."),
    Deed(
        "finalizer-removed",
        "Our finalizer is taken off the pod, which is deleted by force.",
        "The attempt ends as PodLost, uncounted; the next one goes on from the last checkpoint.",
    ),
    Deed(
        "labels-removed",
        "Labels are taken off the pod, so that no watch tells of it any more.",
        "They are put back. No other pod is created.",
    ),
    Deed(
        "owner-removed",
        "The owner reference is taken off the pod.",
        "The pod is a stranger's now: NameTaken. Nothing is created beside it; when it is gone, the run goes on.",
    ),
    Deed(
        "suspend-toggled", "spec.suspend is set and taken back at once.", "The run stops and resumes, or never stops."
    ),
    Deed(
        "status-set-back",
        "status.attempt and status.podName are set back or removed.",
        "They are put right from the pods: no attempt runs beside another.",
    ),
    Deed("start-removed", "status.startTime is removed.", "The API server refuses it."),
    Deed("end-removed", "The phase of a run that is over is edited.", "The API server refuses it."),
    Deed(
        "phase-finished",
        "status.phase is set to Succeeded while the run trains.",
        "The run is over, because its status says so: its pod is asked to save and end. Nothing starts again.",
    ),
    # --- taken ----------------------------------------------------------------------------------------------------
    Deed(
        "config-taken",
        "A stranger's ConfigMap has the name of the run's.",
        "NameTaken, and nothing is read from it. The run goes on by itself when the name is free.",
    ),
    Deed("pod-taken", "A stranger's pod has the name of the run's.", "NameTaken, until the name is free."),
    Deed("service-taken", "A stranger's Service has the name of the run's.", "NameTaken, until the name is free."),
    Deed("policy-taken", "A stranger's NetworkPolicy has that name.", "NameTaken, until the name is free."),
    Deed(
        "series-taken",
        "A stranger's ConfigMap has the name of the series'.",
        "No series is written; the run ends as it would.",
    ),
)
