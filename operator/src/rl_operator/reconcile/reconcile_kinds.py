"""One look at an RLEnvironment or an RLRuntime, and the report in its status.

An environment: its code is read without running it. A runtime: is it valid, what does its image contain, and where can
that be read? An image is read through a pod that prints its environments: all state is in the pods.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import ConfigMapSource, Environment
from rl_operator.api.runtime import FieldsReference, Runtime, RuntimeStatus
from rl_operator.api.status_fields import Condition
from rl_operator.check.openenv_rules import server_faults
from rl_operator.check.quantities import resource_faults
from rl_operator.check.runtime_rules import check_runtime
from rl_operator.cluster.cache.caches import UnreadableRuntime
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.documents.shipped import openenv_environment
from rl_operator.documents.source_files import source_hash
from rl_operator.file_discovery import discover_files
from rl_operator.operator_errors import ForbiddenError, GoneError, InvalidError, NameTakenError, OperatorError
from rl_operator.reconcile.inputs import off_loop
from rl_operator.reconcile.run_client import Key
from rl_operator.render.catalog_and_history import ImageCatalog, catalog_config_map, catalog_name, stored_catalog
from rl_operator.render.discovery import (
    ImageReading,
    discovery_pod,
    discovery_policy,
    environment_reading,
    runtime_reading,
)
from rl_operator.status.image_reading import (
    DISCOVERY_FAILED,
    POLL_SECONDS,
    Begin,
    ReadingPod,
    TakeOutput,
    Wait,
    next_step,
    parse_output,
)
from rl_operator.status.kind_status import (
    EnvironmentReading,
    Readiness,
    Verdict,
    assessed,
    carried_over,
    environment_status,
    faults_verdict,
    files_in,
    look_at_image,
    look_at_resources,
    look_at_server,
    look_at_source,
    ready_verdict,
    reasons_of,
    runtime_status,
    still_true,
    warned_of_requirements,
)

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
        return EnvironmentReading(Verdict(Readiness.RECONCILING, DISCOVERY_FAILED, str(error)))
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
        return Wait(DISCOVERY_FAILED, f"Image {reading.image} cannot be read: {error}", TROUBLE_SECONDS)


async def _report(environment: Environment, look: EnvironmentReading, client: KindsClient, now: datetime) -> None:
    """One write if something changed, one Event if a reason is new."""
    status = environment_status(environment, look, now)
    if status != environment.status:
        await client.write_environment_status(environment, status)
        _tell(environment, status.conditions, look.verdict, client)


def _tell(
    subject: Environment | Runtime | UnreadableRuntime,
    conditions: Sequence[Condition],
    verdict: Verdict,
    client: KindsClient,
) -> None:
    if reasons_of(conditions) != reasons_of(subject.status.conditions):
        bad = verdict.readiness is Readiness.STALLED or verdict.reason in (DISCOVERY_FAILED, "CatalogNotWritten")
        client.record_event(subject, "Warning" if bad else "Normal", verdict.reason, verdict.message)


async def read_image(reading: ImageReading, client: KindsClient, now: datetime) -> ImageCatalog | Wait:
    """One step: start, wait, or take a pod's output. Its pods stay until `tidy` (or the next attempt)."""
    pods = [pod for pod in await client.reading_pods(reading.namespace) if pod.key == reading.key]
    step = next_step(reading.image, pods, now)
    if isinstance(step, TakeOutput):
        read = parse_output(await client.read_log(step.pod))
        if isinstance(read, Catalog):
            return ImageCatalog(read, step.pod.image_id)
        step = next_step(reading.image, pods, now, unreadable=read)
    if isinstance(step, Begin):
        return await _begin(reading, step.attempt, pods, client)
    assert isinstance(step, Wait), "an output that cannot be read is not taken twice"
    return step


async def tidy(reading: ImageReading, client: KindsClient) -> None:
    """Delete the pods of what has been read, and those of the same owner's earlier requests."""
    for pod in await client.reading_pods(reading.namespace):
        if pod.key == reading.key or pod.owner_uid == reading.owner["uid"]:
            await client.delete_pod(pod)


async def _begin(reading: ImageReading, attempt: int, pods: Sequence[ReadingPod], client: KindsClient) -> Wait:
    """The new pod first: it carries on the number of attempts."""
    manifest = discovery_pod(reading, attempt)
    if not reading.trusted:
        await client.create_child(discovery_policy(reading))
    await client.create_child(manifest)
    for pod in pods:
        await client.delete_pod(pod)
    where = f"pod {reading.namespace}/{manifest['metadata']['name']}"
    return Wait("Discovering", f"Image {reading.image} is being read by {where}.", POLL_SECONDS)


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
    look = await _look_at_runtime(runtime, client, now, namespace)
    if await _is_anothers(runtime, client, namespace):
        return look.seconds
    status = _status_of_runtime(runtime, look, now, namespace)
    if status != runtime.status:
        await client.write_runtime_status(runtime, status)
        _tell(runtime, status.conditions, look.verdict, client)
    return look.seconds


async def _look_at_runtime(
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
    ephemeral = runtime.spec.backend.ephemeral
    verdict = ready_verdict(image, found.catalog, read=not client.is_bundled(image), ephemeral=ephemeral)
    return RuntimeReading(verdict, found, stored=True)


def _status_of_runtime(
    runtime: Runtime | UnreadableRuntime, look: RuntimeReading, now: datetime, namespace: str
) -> RuntimeStatus:
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
