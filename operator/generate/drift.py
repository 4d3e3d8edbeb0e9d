"""What happens when someone else deletes, edits or takes over an object that belongs to a run: one rule, as data.

The rule: what can be restored without guessing is restored; an edit is kept; another owner's object is never taken
over. Whatever happens, nothing starts twice and nothing runs unwatched. Each row has its own test on a real API
server (tests/integration/cluster/test_drift.py, by `id`).
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Deed:
    """What someone did, and what happens then."""

    id: str
    what: str
    follows: str


DRIFTS: Final[tuple[Deed, ...]] = (
    # --- deleted --------------------------------------------------------------------------------------------------
    Deed(
        "config-deleted",
        "The run's ConfigMap is deleted.",
        "It is created again at once if its content is still the same.",
    ),
    Deed(
        "config-lost",
        "The run's ConfigMap is deleted after the runtime or environment was edited.",
        "The running pod continues, and the message says so. There is no further attempt: the run fails as ConfigLost"
        " and keeps its checkpoint.",
    ),
    Deed("network-deleted", "The Service or a NetworkPolicy is deleted.", "It is created again while the run trains."),
    Deed("pod-deleted", "The run's pod is deleted.", "The trainer saves; the attempt ends as PodDeleted, uncounted."),
    Deed("environment-deleted", "An environment's pod is deleted.", "Another one replaces it; no failure is counted."),
    Deed("history-deleted", "The ConfigMap with the curve is deleted.", "It is not recreated: a curve is advisory."),
    Deed(
        "applied-again",
        "The run is deleted and applied again under its name.",
        "The new run has its own children, named by its uid; what is left of the old one is released.",
    ),
    # --- edited ---------------------------------------------------------------------------------------------------
    Deed("network-edited", "The Service or a NetworkPolicy is edited.", "It stays as it is."),
    Deed(
        "finalizer-removed",
        "Our finalizer is removed from the pod, and the pod is deleted by force.",
        "The attempt ends as PodLost, uncounted; the next one continues from the last checkpoint.",
    ),
    Deed(
        "labels-removed",
        "Labels are removed from the pod, so that no watch reports it anymore.",
        "They are restored. No other pod is created.",
    ),
    Deed(
        "owner-removed",
        "The owner reference is removed from the pod.",
        "The pod is no longer the run's: NameTaken. Nothing is created beside it. The run continues when it is gone.",
    ),
    Deed("suspend-toggled", "spec.suspend is set and unset at once.", "The run stops and resumes, or never stops."),
    Deed(
        "status-set-back",
        "status.attempt and status.podName are set back or removed.",
        "They are corrected from the pods: no attempt runs beside another.",
    ),
    Deed(
        "end-edited",
        "The message or the conditions of a run that is over are edited.",
        "Where they contradict each other, its phase or its failure, they are put back, from its phase, its failure and"
        " its weights. An edit of the message and all conditions alike is not noticed.",
    ),
    Deed("start-removed", "status.startTime is removed.", "The API server refuses it."),
    Deed("end-removed", "The phase of a run that is over is edited.", "The API server refuses it."),
    Deed(
        "phase-finished",
        "status.phase is set to Succeeded while the run trains.",
        "The run is over, because its status says so: its pod is told to save and end. Nothing starts again.",
    ),
    # --- taken ----------------------------------------------------------------------------------------------------
    Deed(
        "config-taken",
        "A ConfigMap of someone else has the name of the run's.",
        "NameTaken, and nothing is read from it. The run continues on its own when the name is free.",
    ),
    Deed(
        "config-forged",
        "A ConfigMap with the run's name and owner holds something else than the run was started with: it was there"
        " before, or was changed, exchanged or added to.",
        "TemplateChanged, and nothing is made from it; a pod that trains goes on. Once it is deleted, it is written"
        " again as it was.",
    ),
    Deed("pod-taken", "A pod of someone else has the name of the run's.", "NameTaken, until the name is free."),
    Deed("service-taken", "A Service of someone else has the name of the run's.", "NameTaken, until the name is free."),
    Deed("policy-taken", "A NetworkPolicy of someone else has that name.", "NameTaken, until the name is free."),
    Deed(
        "history-taken",
        "A ConfigMap of someone else has the name of the curve's.",
        "No curve is written; the run ends as usual.",
    ),
)
