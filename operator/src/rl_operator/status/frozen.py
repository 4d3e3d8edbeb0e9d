"""What the free-form settings were at the start, and what to report if the spec has changed since.

An admission policy rejects such an edit; without one, the run continues with the settings it started with.
"""

import hashlib
import json
from typing import Any

from rl_operator.api.hints import FROZEN
from rl_operator.api.refusal import Refusal
from rl_operator.api.run import RunSpec, TrainingRun
from rl_operator.api.status_fields import FrozenSettings
from rl_operator.documents.yaml_text import json_value


def frozen_settings(spec: RunSpec) -> FrozenSettings:
    return FrozenSettings(config=_hash(spec.config), tinker=_hash(spec.tinker))


def frozen_refusals(run: TrainingRun) -> tuple[Refusal, ...]:
    """One refusal per section that was edited after the start; none while they are unchanged. What is too large to
    be read may be what it was: nothing is said of it.
    """
    before, now = run.status.frozen, frozen_settings(run.spec)
    if before is None or before == now:
        return ()
    read = (name for name in FrozenSettings.model_fields if not run.is_unread(name))
    edited = [name for name in read if getattr(before, name) != getattr(now, name)]
    return tuple(Refusal(code="FrozenField", field=f"spec.{name}", hint=FROZEN) for name in edited)


def _hash(settings: dict[str, Any]) -> str:
    """8 hex digits of the canonical JSON; 1.0 is 1, as the API server stores it."""
    canonical = json.dumps(json_value(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]
