"""One look at an RLRuntime: is it valid, what does its image contain, and where can that be read?"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rl_operator.api.runtime import FieldsReference, Runtime, RuntimeStatus
from rl_operator.check.runtime_rules import check_runtime
from rl_operator.cluster.cache.caches import UnreadableRuntime
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.errors import ForbiddenError, GoneError, InvalidError, NameTakenError
from rl_operator.reconcile.off_loop import off_loop
from rl_operator.reconcile.read_image import read_image, tidy
from rl_operator.reconcile.run_client import Key
from rl_operator.render.config_maps import ImageCatalog, catalog_config_map, catalog_name, stored_catalog
from rl_operator.render.discovery import runtime_reading
from rl_operator.status.kinds.image_reading import DISCOVERY_FAILED, Wait
from rl_operator.status.kinds.runtime_status import faults_verdict, ready_verdict, runtime_status
from rl_operator.status.kinds.verdict import Readiness, Verdict, reasons_of

TROUBLE_SECONDS: Final = 30.0
"""How soon a refused write (no permission, name taken, namespace missing) is retried."""


@dataclass(frozen=True, slots=True)
class RuntimeReading:
    """What was seen. `seconds`: until the next look; None: on events only."""

    verdict: Verdict
    found: ImageCatalog | None = None
    stored: bool = False
    seconds: float | None = None


async def reconcile_runtime(
    key: Key, client: KindsClient, clock: Callable[[], datetime], namespace: str
) -> float | None:
    """`namespace`: the operator's own, where catalogs and the pods that read images are."""
    runtime = client.runtime(key[1])
    if runtime is None or runtime.metadata.deletion_timestamp is not None:
        return None
    now = clock()
    look = await _look(runtime, client, now, namespace)
    if await _is_anothers(runtime, client, namespace):
        return look.seconds
    await _report(runtime, _status(runtime, look, now, namespace), look.verdict, client)
    return look.seconds


async def _look(
    runtime: Runtime | UnreadableRuntime, client: KindsClient, now: datetime, namespace: str
) -> RuntimeReading:
    faults = runtime.faults if isinstance(runtime, UnreadableRuntime) else await off_loop(check_runtime, runtime)
    if isinstance(runtime, UnreadableRuntime) or faults:
        return RuntimeReading(faults_verdict(faults))
    try:
        return await _look_at_image(runtime, client, now, namespace)
    except (ForbiddenError, GoneError, InvalidError, NameTakenError) as error:
        # What is known about the image serves runs all the same: it is just not written down.
        verdict = Verdict(Readiness.RECONCILING, "CatalogNotWritten", str(error))
        return RuntimeReading(verdict, client.catalog(runtime.spec.image_of_environments), seconds=TROUBLE_SECONDS)


async def _look_at_image(runtime: Runtime, client: KindsClient, now: datetime, namespace: str) -> RuntimeReading:
    """Read the image unless that has been done; then write down what it contains."""
    image = runtime.spec.image_of_environments
    live = await client.read_config_map(namespace, catalog_name(runtime.metadata.name))
    reading = runtime_reading(runtime, namespace)
    stored = stored_catalog(live) if live else None
    current = stored is not None and stored.image == image
    wanted_again = stored is not None and current and stored.rediscover != reading.rediscover
    found = client.catalog(image)
    if found is None or (wanted_again and not client.is_bundled(image)):
        read = await read_image(reading, client, now)
        if isinstance(read, Wait):
            failing = read.reason == DISCOVERY_FAILED and found is None
            readiness = Readiness.FAILING if failing else Readiness.RECONCILING
            return RuntimeReading(Verdict(readiness, read.reason, read.message), found, current, read.seconds)
        found = read
        client.hold_catalog(image, found)
    await client.save_config_map(catalog_config_map(runtime, namespace, found), live)
    await tidy(reading, client)
    verdict = ready_verdict(image, found.catalog, ephemeral=runtime.spec.backend.ephemeral)
    return RuntimeReading(verdict, found, stored=True)


def _status(runtime: Runtime | UnreadableRuntime, look: RuntimeReading, now: datetime, namespace: str) -> RuntimeStatus:
    reference = FieldsReference(namespace=namespace, name=catalog_name(runtime.metadata.name))
    return runtime_status(
        runtime.status,
        look.verdict,
        generation=runtime.metadata.generation,
        now=now,
        catalog=look.found.catalog if look.found else None,
        image_id=look.found.image_id if look.found else None,
        fields_ref=reference if look.stored else None,
    )


async def _is_anothers(runtime: Runtime | UnreadableRuntime, client: KindsClient, namespace: str) -> bool:
    """Whether an operator with another namespace has already reported everything about the runtime, and where its
    fields can be read: two that serve a namespace each would overwrite each other forever.
    """
    status, reference = runtime.status, runtime.status.fields_ref
    if reference is None or reference.namespace == namespace:
        return False
    if status.observed_generation != runtime.metadata.generation:
        return False
    try:
        return await client.read_config_map(reference.namespace, reference.name) is not None
    except ForbiddenError:
        return True  # it cannot be known to be gone


async def _report(
    runtime: Runtime | UnreadableRuntime, status: RuntimeStatus, verdict: Verdict, client: KindsClient
) -> None:
    """One write if something changed, one Event if a reason is new."""
    if status == runtime.status:
        return
    await client.write_runtime_status(runtime, status)
    if reasons_of(status.conditions) != reasons_of(runtime.status.conditions):
        bad = verdict.readiness is Readiness.STALLED or verdict.reason in (DISCOVERY_FAILED, "CatalogNotWritten")
        client.record_event(runtime, "Warning" if bad else "Normal", verdict.reason, verdict.message)
