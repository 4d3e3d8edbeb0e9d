"""Stop and resume a run: the same for rlctl and the page."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.errors import RefusedError
from rl_operator.targets.gitops import suspend_warning
from rl_operator.targets.runs.run_lookup import existing_run, was_restored
from rl_operator.targets.target import Manifest, Note, Target

OVER = ("Succeeded", "Failed")

Action = Literal["stop", "resume"]


@dataclass(frozen=True)
class Offer:
    """What the owner of a run may do with it now, and what to know before."""

    action: Action
    warning: str = ""


def offer_of(run: Manifest) -> Offer | None:
    """None: it is over."""
    if run.get("status", {}).get("phase") in OVER:
        return None
    suspended = bool(run["spec"].get("suspend"))
    if suspended or was_restored(run):
        return Offer("resume", (suspend_warning(run, suspend=False) or "") if suspended else "")
    return Offer("stop", suspend_warning(run, suspend=True) or "")


def stop_run(target: Target, namespace: str, name: str, note: Note) -> None:
    """Ask for it. Raises RefusedError."""
    run = existing_run(target, namespace, name)
    if (phase := run.get("status", {}).get("phase")) in OVER:
        raise RefusedError(f"run {name} of {target.label} is over ({phase}); there is nothing to stop")
    if warning := suspend_warning(run, suspend=True):
        note(warning)
    target.change_spec(namespace, name, {"suspend": True})


def resume_run(target: Target, namespace: str, name: str, install: Callable[[Manifest], None], note: Note) -> str:
    """Start a draft, or continue a stopped run. `install`: what its environment needs. Returns what it does now; empty
    if there was nothing to do. Raises RefusedError.
    """
    run = existing_run(target, namespace, name)
    status = run.get("status", {})
    if (phase := status.get("phase")) in OVER:
        raise RefusedError(
            f"run {name} of {target.label} is over ({phase}); to train on from its weights, start a run with "
            f"startFrom: {{run: {name}}}"
        )
    restored = was_restored(run)
    if not run["spec"].get("suspend") and not restored:
        return ""
    if run["spec"].get("suspend") and (warning := suspend_warning(run, suspend=False)):
        note(warning)
    install(run)
    target.change_spec(namespace, name, {"suspend": False}, {STARTED_AS_ANNOTATION: None} if restored else None)
    if restored:
        return "was restored from a backup and trains from the beginning"
    return "continues from its last checkpoint" if "startTime" in status else "starts"
