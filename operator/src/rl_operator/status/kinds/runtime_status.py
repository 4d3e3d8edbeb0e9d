"""The status of an RLRuntime."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rl_operator.api.catalog import Catalog
from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import FieldsReference, RuntimeEnvironment, RuntimeStatus
from rl_operator.status.kinds.verdict import Readiness, Verdict, conditions_of
from rl_operator.status.text.sentences import cut, joined

MAX_DESCRIPTION: Final = 120
MAX_WARNINGS: Final = 10

EPHEMERAL_WARNING: Final = (
    "Warning: the backend's checkpoints and weights are deleted with its pod (backend.ephemeral): a run that is to "
    "continue after that ends as CheckpointLost."
)


def faults_verdict(faults: Sequence[Refusal]) -> Verdict:
    """Invalid settings in the spec: all of them are named."""
    return Verdict(Readiness.STALLED, "RuntimeInvalid", "\n".join(fault.sentence for fault in faults))


def ready_verdict(image: str, catalog: Catalog, *, ephemeral: bool) -> Verdict:
    """`image`: what was read; `ephemeral`: the backend does not keep checkpoints (`spec.backend.ephemeral`)."""
    count = len(catalog.nameable)
    found = f"{count} environment{'' if count == 1 else 's'} in image {image}."
    return Verdict(Readiness.READY, "CatalogRead", joined(found, EPHEMERAL_WARNING if ephemeral else ""))


def runtime_status(
    previous: RuntimeStatus,
    verdict: Verdict,
    *,
    generation: int,
    now: datetime,
    catalog: Catalog | None = None,
    image_id: str | None = None,
    fields_ref: FieldsReference | None = None,
) -> RuntimeStatus:
    """`catalog` None: nothing is known about the spec's image."""
    environments = catalog.outline if catalog else ()
    return RuntimeStatus(
        observed_generation=generation,
        conditions=conditions_of(verdict, previous.conditions, generation, now),
        environments=tuple(
            RuntimeEnvironment(name=each.name, description=cut(each.description, MAX_DESCRIPTION))
            for each in environments
        ),
        fields_ref=fields_ref,
        image_id=image_id,
        warnings=_few(catalog.warnings) if catalog else (),
    )


def _few(warnings: Sequence[str]) -> tuple[str, ...]:
    if len(warnings) <= MAX_WARNINGS:
        return tuple(warnings)
    kept = MAX_WARNINGS - 1
    return (*warnings[:kept], f"and {len(warnings) - kept} more: the catalog's ConfigMap has all of them")
