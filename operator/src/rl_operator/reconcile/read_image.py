"""Read the environments of an image through a pod that prints them. All state is in the pods."""

from collections.abc import Sequence
from datetime import datetime

from rl_operator.api.catalog import Catalog
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.render.config_maps import ImageCatalog
from rl_operator.render.discovery import ImageReading, discovery_pod, discovery_policy
from rl_operator.status.kinds.image_reading import (
    POLL_SECONDS,
    Begin,
    ReadingPod,
    TakeOutput,
    Wait,
    next_step,
    parse_output,
)


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
