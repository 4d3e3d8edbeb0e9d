"""Where a run's rollouts are on a cluster: with its trainer while that runs, else in what its runtime keeps them in.

All calls go through the API server with the caller's rights: the servers in the pods are asked through `pods/proxy`.
"""

import asyncio
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from rl_contract.processes import OPS_TOKEN_HEADER, TRAINER_PORT
from rl_operator.api.kubernetes_objects import PodObject
from rl_operator.api.names import COMPONENT_LABEL, ROLLOUTS_LABEL, RUN_LABEL, TRAINER_CONTAINER, TRAINING_COMPONENT
from rl_operator.api.training_run import TrainingRun
from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.resources import CONFIG_MAPS, JOBS, PODS, all_of, find
from rl_operator.operator_errors import (
    ForbiddenError,
    GoneError,
    PodNeededError,
    RefusedError,
    TargetUnreachableError,
    WaitTimeoutError,
)
from rl_operator.render.labels import controller_uid
from rl_operator.render.manifests import templates_of
from rl_operator.render.rollout_reader import READER_CONTAINER, keeps_rollouts, rollout_reader_job
from rl_operator.rollouts.rollout_source import RolloutListing
from rl_operator.status.observed.observation import ops_token_of
from rl_operator.targets.target import JOB_NAME_LABEL, Note, job_pod
from rl_operator.targets.target_loop import LoopThread

START_SECONDS: Final = 120
"""For a pod of an image that the cluster has pulled before."""

POLL_SECONDS: Final = 0.5
MAX_LISTING_BYTES: Final = 16 * 2**20
MAX_FILE_BYTES: Final = 256 * 2**20

KEEP_THEM: Final = (
    "The platform can keep them for good: spec.rollouts of the RLRuntime names a PersistentVolumeClaim or a bucket "
    "(docs/how-to/operate.md)"
)

UNREACHED: Final = (
    "If pod {pod} is ready, the NetworkPolicy of its run does not let the API server's connections in: the platform "
    "names where they come from in networkPolicy.runs.from of the chart, or in --ops-peers (docs/how-to/operate.md)"
)

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


_LISTING: Final = TypeAdapter(RolloutListing)
"""What `GET /rollouts` answers."""


@dataclass(frozen=True)
class PodRollouts:
    """Implements `rollout_source.RolloutSource` over a pod's server."""

    client: ClusterClient
    loop: LoopThread
    namespace: str
    pod: str
    where: str
    ops_token: str = field(repr=False)
    port: int = TRAINER_PORT

    def listing(self) -> RolloutListing:
        try:
            return _LISTING.validate_json(self._get("", MAX_LISTING_BYTES))
        except GoneError as error:
            raise RefusedError(f"{self.where} has no rollouts: it is gone, or older than they are ({error})") from error
        except ValidationError as error:
            raise TargetUnreachableError(f"{self.where} lists its rollouts in a way that is not known here") from error

    def content(self, name: str, begin: int = 0) -> bytes:
        if not _PLAIN_NAME.fullmatch(name):
            raise GoneError(f"there is no rollout file {name!r} in {self.where}")
        try:
            return self._get(f"/{name}", MAX_FILE_BYTES, begin)
        except GoneError as error:
            raise GoneError(f"there is no rollout file {name!r} in {self.where} any more") from error

    def _get(self, path: str, limit: int, begin: int = 0) -> bytes:
        """The API server passes the token on, and keeps the caller's own credentials to itself."""
        server, headers = f"{PODS.path(self.namespace, self.pod)}:{self.port}/proxy", {OPS_TOKEN_HEADER: self.ops_token}
        try:
            return self.loop.wait(self.client.content(f"{server}/rollouts{path}", limit, begin, headers))
        except ForbiddenError as error:
            raise ForbiddenError(
                f"reading rollouts takes the right to get pods/proxy in namespace {self.namespace}, which the role "
                f"edit has and view has not ({error})"
            ) from error
        except TargetUnreachableError as error:
            raise TargetUnreachableError(f"{error}. {UNREACHED.format(pod=self.pod)}") from error


def rollouts_of(
    client: ClusterClient, loop: LoopThread, run: TrainingRun, note: Note, *, may_start: bool = True
) -> PodRollouts:
    """Raises RefusedError if there are none, ForbiddenError naming the right that is missing, WaitTimeoutError, what
    `templates_of` raises; without `may_start` PodNeededError if nobody reads them yet.
    """
    namespace, name = run.key
    if run.status.config_map_name is None:
        raise RefusedError(f"run {namespace}/{name} has not started, so it has no rollouts yet")
    if pod := loop.wait(_training_pod(client, run)):
        name = pod["metadata"]["name"]
        return PodRollouts(client, loop, namespace, name, f"pod {name}", ops_token_of(pod))
    held = loop.wait(find(client, CONFIG_MAPS, namespace, run.status.config_map_name))
    # As it was rendered, since its runtime may have been edited, and verified: a Job is made with the caller's rights.
    template = templates_of(held, run).pod if held else None
    if template is None or not keeps_rollouts(template):
        raise RefusedError(f"the rollouts of run {namespace}/{name} went with its trainer. {KEEP_THEM}")
    if not may_start and not any(map(_is_ready, loop.wait(_live_readers(client, run)))):
        raise PodNeededError("the trainer has ended")
    reader = loop.wait(_reading_pod(client, run, template, note))
    name, token = reader["metadata"]["name"], ops_token_of(reader)
    return PodRollouts(client, loop, namespace, name, f"the run's storage (read by pod {name})", token)


async def _training_pod(client: ClusterClient, run: TrainingRun) -> PodObject | None:
    """The run's pod whose trainer runs, if any."""
    selector = f"{RUN_LABEL}={run.metadata.name},{COMPONENT_LABEL}={TRAINING_COMPONENT}"
    pods = await _pods(client, run, selector)
    ours = (each for each in pods if _trains(each) and controller_uid(each) == run.metadata.uid)
    return next(ours, None)


def _trains(pod: PodObject) -> bool:
    states = {each["name"]: each["state"] for each in pod.get("status", {}).get("containerStatuses", [])}
    return "running" in states.get(TRAINER_CONTAINER, {})


async def _reading_pod(client: ClusterClient, run: TrainingRun, template: PodObject, note: Note) -> PodObject:
    """The pod of a Job that serves them, once it is ready: one that is there, else a new one."""
    namespace, name = run.key
    job = rollout_reader_job(run, template, secrets.token_hex(2)[:3], secrets.token_urlsafe())
    if not await _live_readers(client, run):
        try:
            await client.create(JOBS.path(namespace), job)
        except ForbiddenError as error:
            raise ForbiddenError(
                f"the trainer of run {namespace}/{name} has ended, and a Job with your rights reads what it kept: ask "
                f"for the right to create Jobs in namespace {namespace} ({error})"
            ) from error
        note(f"Job {namespace}/{job['metadata']['name']} starts, which reads the rollouts that were kept")
    for _ in range(round(START_SECONDS / POLL_SECONDS)):
        pods = await _live_readers(client, run)
        if ready := next(filter(_is_ready, pods), None):
            return ready
        ours = job_pod(job, await _pods(client, run, f"{JOB_NAME_LABEL}={job['metadata']['name']}"))
        reader = ours.containers[READER_CONTAINER]
        if reader.state == "ended":
            raise TargetUnreachableError(f"pod {ours.name}, which was to read the rollouts, has ended: {reader.reason}")
        await asyncio.sleep(POLL_SECONDS)
    raise WaitTimeoutError(
        f"the pod that reads the rollouts of run {namespace}/{name} is not ready after {START_SECONDS} s: "
        f"{reader.reason or reader.state}"
    )


async def _live_readers(client: ClusterClient, run: TrainingRun) -> list[PodObject]:
    over = ("Failed", "Succeeded")
    found = await _pods(client, run, f"{ROLLOUTS_LABEL}={run.metadata.uid}")
    return [
        each
        for each in found
        if "deletionTimestamp" not in each["metadata"] and each.get("status", {}).get("phase") not in over
    ]


def _is_ready(pod: PodObject) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _pods(client: ClusterClient, run: TrainingRun, selector: str) -> list[PodObject]:
    return await all_of(client, PODS.path(run.metadata.namespace), {"labelSelector": selector})
