"""One look at an RLEnvironment: read its code without running it, and report in its status what it is."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from rl_operator.api.environment import ConfigMapSource, Environment
from rl_operator.check.openenv_rules import server_faults
from rl_operator.check.quantities import resource_faults
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.discover import discover_files
from rl_operator.documents.shipped import openenv_environment
from rl_operator.documents.source_files import source_hash
from rl_operator.errors import ForbiddenError, InvalidError, NameTakenError, OperatorError
from rl_operator.reconcile.read_image import read_image, tidy
from rl_operator.reconcile.run_client import Key
from rl_operator.render.config_maps import ImageCatalog
from rl_operator.render.discovery import ImageReading, environment_reading
from rl_operator.status.kinds.environment_status import (
    EnvironmentReading,
    assessed,
    carried_over,
    environment_status,
    files_in,
    look_at_image,
    look_at_resources,
    look_at_server,
    look_at_source,
    still_true,
    warned_of_requirements,
)
from rl_operator.status.kinds.image_reading import Wait
from rl_operator.status.kinds.verdict import Readiness, Verdict, reasons_of

READY_SECONDS: Final = 60.0
WAITING_SECONDS: Final = 5.0
"""How often a user's ConfigMap is looked at: it is not ours, so its changes are not reported."""


TROUBLE_SECONDS: Final = 30.0
"""How soon a refused write is retried."""


async def reconcile_environment(key: Key, client: KindsClient, clock: Callable[[], datetime]) -> float | None:
    """Returns the seconds until the next look; None: on events only."""
    environment = client.environment(key)
    if environment is None or environment.metadata.deletion_timestamp is not None:
        return None
    if broken := look_at_resources(tuple(resource_faults(("spec", "resources"), environment.spec.resources))):
        await _report(environment, broken, client, clock())
        return None
    source = environment.spec.source
    if environment.spec.openenv is not None:
        faults = tuple(server_faults(environment, local=False))
        await _report(environment, look_at_server(environment, faults, openenv_environment()), client, clock())
        return None
    if source is None:
        return await _follow_image(environment, client, clock())
    look = await _look_at_config_map(environment, source.config_map, client)
    if look is not None:
        await _report(environment, look, client, clock())
        return READY_SECONDS if look.verdict.readiness is Readiness.READY else WAITING_SECONDS
    ready = environment.status.condition("Stalled") is None
    return READY_SECONDS if ready else WAITING_SECONDS


async def _look_at_config_map(
    environment: Environment, source: ConfigMapSource, client: KindsClient
) -> EnvironmentReading | None:
    """None: the status already says all of it."""
    namespace = environment.metadata.namespace
    where = f"ConfigMap {namespace}/{source.name}"
    files = files_in(where, await client.read_config_map(namespace, source.name))
    if isinstance(files, EnvironmentReading):
        return files
    if still_true(environment, source_hash(files)):
        return None
    try:
        catalog = await discover_files(files, source.entry)
    except OperatorError as error:  # the reader itself is missing or unfit: not the author's fault
        return EnvironmentReading(Verdict(Readiness.RECONCILING, "DiscoveryFailed", str(error)))
    return warned_of_requirements(look_at_source(where, files, source.entry, catalog), files)


async def _follow_image(environment: Environment, client: KindsClient, now: datetime) -> float | None:
    """An image is read once per entry and request; afterwards only a resync looks at it."""
    image, reading = environment.spec.image, environment_reading(environment)
    assert image is not None, "an environment without source code has an image"
    if assessed(environment, reading.key):
        if not still_true(environment, reading.key):
            await client.write_environment_status(environment, carried_over(environment))
        await tidy(reading, client)
        return None
    read = await _read(reading, client, now)
    if isinstance(read, Wait):
        await _report(
            environment, EnvironmentReading(Verdict(Readiness.RECONCILING, read.reason, read.message)), client, now
        )
        return read.seconds
    await _report(environment, look_at_image(read.catalog, image.entry, reading.key, read.image_id), client, now)
    await tidy(reading, client)
    return None


async def _read(reading: ImageReading, client: KindsClient, now: datetime) -> ImageCatalog | Wait:
    try:
        return await read_image(reading, client, now)
    except (ForbiddenError, InvalidError, NameTakenError) as error:  # a quota, an admission policy, someone else's pod
        return Wait("DiscoveryFailed", f"Image {reading.image} cannot be read: {error}", TROUBLE_SECONDS)


async def _report(environment: Environment, look: EnvironmentReading, client: KindsClient, now: datetime) -> None:
    """One write if something changed, one Event if a reason is new."""
    status = environment_status(environment, look, now)
    if status == environment.status:
        return
    await client.write_environment_status(environment, status)
    if reasons_of(status.conditions) != reasons_of(environment.status.conditions):
        bad = look.verdict.readiness is Readiness.STALLED or look.verdict.reason == "DiscoveryFailed"
        client.record_event(environment, "Warning" if bad else "Normal", look.verdict.reason, look.verdict.message)
