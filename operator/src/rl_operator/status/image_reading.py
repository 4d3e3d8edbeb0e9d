"""How far the reading of an image is, from the pods that were started for it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pydantic import ValidationError

from rl_operator.api.catalog import Catalog
from rl_operator.api.kubernetes_objects import ContainerStatusObject, PodObject, PodStatus, TerminatedState
from rl_operator.api.names import DISCOVERY_ATTEMPT_LABEL, DISCOVERY_LABEL
from rl_operator.backoff import backoff
from rl_operator.status.observed.observation import format_time, parse_time
from rl_operator.status.text.sentences import cut

DISCOVERY_FAILED: Final = "DiscoveryFailed"

POLL_SECONDS: Final = 1.0
FIRST_PAUSE_SECONDS: Final = 15.0
MAX_PAUSE_SECONDS: Final = 900.0
MAX_CAUSE: Final = 400
MAX_OUTPUT_BYTES: Final = 4 * 2**20


@dataclass(frozen=True, slots=True)
class ReadingPod:
    """One attempt. `trouble`: why it failed, or, while it has not ended, what keeps it from starting."""

    name: str
    namespace: str
    uid: str
    owner_uid: str
    key: str
    attempt: int
    ended_at: datetime | None
    trouble: str | None
    image_id: str | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Start this attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for this many seconds."""

    reason: str
    message: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TakeOutput:
    """The pod ended normally: its log is the catalog."""

    pod: ReadingPod


def observe_reading_pod(document: PodObject) -> ReadingPod:
    metadata, status = document["metadata"], document.get("status") or {}
    labels = metadata.get("labels", {})
    container = next(iter(status.get("containerStatuses") or ()), ContainerStatusObject())
    over = status.get("phase") in ("Succeeded", "Failed")
    terminated = (container.get("state") or {}).get("terminated") or {}
    return ReadingPod(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        owner_uid=next((owner["uid"] for owner in metadata.get("ownerReferences", ())), ""),
        key=labels.get(DISCOVERY_LABEL, ""),
        attempt=_number(labels.get(DISCOVERY_ATTEMPT_LABEL, "")),
        ended_at=parse_time(terminated.get("finishedAt") or metadata["creationTimestamp"]) if over else None,
        trouble=_failure(status, terminated) if over else _obstacle(status, container),
        image_id=container.get("imageID") or None,
    )


def _number(label: str) -> int:
    """Anyone may edit labels."""
    return int(label) if re.fullmatch("[0-9]{1,9}", label) else 1


def _failure(status: PodStatus, terminated: TerminatedState) -> str | None:
    if status["phase"] == "Succeeded":
        return None
    reason = status.get("reason") or terminated.get("reason") or "Failed"
    code = f", exit code {terminated['exitCode']}" if "exitCode" in terminated else ""
    message = status.get("message") or terminated.get("message") or "it left no message"
    return _short(f"{reason}{code}: {message}")


def _obstacle(status: PodStatus, container: ContainerStatusObject) -> str | None:
    """What the kubelet or the scheduler reports for a pod that does not start; None if all is well."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("message"):
        return _short(f"{waiting.get('reason')}: {waiting['message']}")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _short(f"{condition.get('reason')}: {condition.get('message', '')}")
    return None


def next_step(
    image: str, pods: Sequence[ReadingPod], now: datetime, unreadable: str | None = None
) -> Begin | Wait | TakeOutput:
    """What to do next about an image. `unreadable`: why the output of the last attempt is not a catalog."""
    last = max(pods, key=lambda pod: pod.attempt, default=None)
    if last is None:
        return Begin(1)
    where = f"pod {last.namespace}/{last.name}"
    if last.ended_at is None:
        if last.trouble:
            return Wait(DISCOVERY_FAILED, f"Image {image} cannot be read: {where}: {last.trouble}", POLL_SECONDS)
        return Wait("Discovering", f"Image {image} is being read by {where}.", POLL_SECONDS)
    cause = last.trouble or unreadable
    if cause is None:
        return TakeOutput(last)
    due = last.ended_at + timedelta(seconds=backoff(last.attempt, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
    if now >= due:
        return Begin(last.attempt + 1)
    message = f"Image {image} cannot be read: {where}: {cause} (tried again at {format_time(due)})"
    return Wait(DISCOVERY_FAILED, message, (due - now).total_seconds())


def parse_output(log: str) -> Catalog | str:
    """The catalog in a log, or why there is none. Output around the JSON is skipped."""
    start = 0 if log.startswith("{") else log.find("\n{") + 1
    try:
        document, _ = json.JSONDecoder().raw_decode(log, start)
        return Catalog.model_validate(document)
    except (ValueError, ValidationError, RecursionError) as error:
        cut_off = f", and it is longer than {MAX_OUTPUT_BYTES} bytes" if len(log.encode()) >= MAX_OUTPUT_BYTES else ""
        return _short(f"`tinker-atropos environments -o json` printed no catalog: {error}{cut_off}")


def _short(text: str) -> str:
    return cut(" ".join(text.split()), MAX_CAUSE)
