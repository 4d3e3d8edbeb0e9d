"""What an attempt consists of: the steps of its start, and the pods of its environments and sandboxes while it lasts.

The order of the steps makes them safe; any of them may be the last before a crash.
"""

import logging
import secrets
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from rl_operator.api.kubernetes_objects import KubernetesObject
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import GoneError, InvalidError
from rl_operator.reconcile.frozen_run import CONSEQUENCE, frozen_templates, render, require_source
from rl_operator.reconcile.run_client import RunClient
from rl_operator.render.container_env_vars import (
    checkpoint_env_vars,
    cost_env_vars,
    ops_token_env_var,
    share_env_vars,
)
from rl_operator.render.environment_pod import environment_pod
from rl_operator.render.manifests import Rendered, Templates, config_map_name, pod_name
from rl_operator.render.network import network_names, ops_policy, ops_policy_name, sandbox_network_names
from rl_operator.render.pod import pod_of_attempt
from rl_operator.render.sandbox_pod import sandbox_pod
from rl_operator.status.attempt.environment_slots import EVALUATOR, plan_environments
from rl_operator.status.attempt.run_admission import must_wait
from rl_operator.status.attempt.sandbox_slots import plan_sandboxes
from rl_operator.status.attempt.view import View
from rl_operator.status.derived_status import frozen_settings, started
from rl_operator.status.observed.observation import PodObservation
from rl_operator.status.text.sentences import cut

log = logging.getLogger(__name__)


async def record_status(client: RunClient, run: TrainingRun, status: RunStatus) -> TrainingRun:
    """Logged only once it is written: a write that loses the race is another operator's to tell."""
    written = await client.write_status(run, status)
    if change := _change(run, status):
        level, what = change
        log.log(level, cut(" ".join(f"run {'/'.join(run.key)} {what}".split()), LONGEST))
    return written


LONGEST: Final = 500
"""Characters. A message may quote what the run's own code said."""


def _change(run: TrainingRun, status: RunStatus) -> tuple[int, str] | None:
    """Level and sentence, if the run begins an attempt, ends one, is over, or is refused; None for all else."""
    before = run.status
    if status.finished:
        return None if before.finished else _end(status)
    if status.attempts and status.attempts[-1:] != before.attempts[-1:]:
        ended = status.attempts[-1]
        what = f"attempt {ended.attempt} has ended after step {ended.steps}"
        return logging.INFO, f"{what}: {_with_reason(ended.reason, status.message)}"
    if status.attempt is not None and status.attempt != before.attempt:
        return logging.INFO, f"attempt {status.attempt} starts: {run.spec.environment}, pod {status.pod_name}"
    if status.refusals and status.refusals != before.refusals:
        return logging.WARNING, f"is refused: {_with_reason(status.refusals[0].code, _refused(status))}"
    return None


def _end(status: RunStatus) -> tuple[int, str]:
    reason = status.failure.reason if status.failure and status.phase == "Failed" else None
    level = logging.WARNING if status.phase == "Failed" else logging.INFO
    return level, f"is over: {status.phase}: {_with_reason(reason, status.message)}"


def _refused(status: RunStatus) -> str:
    """The message, which counts all refusals; that of a started run is about its training."""
    message = status.message or ""
    told = message.removeprefix("Refused: ")
    return told if told != message else " ".join(refusal.sentence for refusal in status.refusals)


def _with_reason(reason: str | None, message: str | None) -> str:
    """Most messages begin with their reason."""
    return message or reason or "" if reason is None or reason in (message or "") else f"{reason}: {message}"


async def start(view: View, inputs: RunInputs | None, client: RunClient) -> View:
    """Freeze the run and begin its next attempt. The first write is the lock: a caller that loses it starts nothing."""
    position = client.queue_position(view.run)  # others may have started since the run was looked at
    view = replace(view, queue_position=position)
    if must_wait(view):
        return view
    with client.slot_claimed(view.run):
        frozen, rendered = await _freeze(view, inputs, client)
    attempt, pod = frozen.status.attempt, frozen.status.pod_name
    client.record_event(frozen, "Normal", "Starting", f"Attempt {attempt} starts in pod {pod}.")
    view = replace(view, run=frozen, pod=None)
    return await (_create_children(view, rendered, client) if rendered else create_missing(view, client))


async def _freeze(view: View, inputs: RunInputs | None, client: RunClient) -> tuple[TrainingRun, Rendered | None]:
    """Write down what the next attempt is. What an earlier attempt was made from is not rendered again."""
    run, rendered = view.run, None
    attempt = (run.status.attempt or 0) + 1
    name, content = run.status.config_map_name, run.status.config_hash or ""
    if name is None:
        rendered = await render(view, inputs, client)
        name, content = config_map_name(run, rendered.config_hash), rendered.config_hash
    status = started(
        view,
        attempt=attempt,
        pod_name=pod_name(run, attempt),
        config_map_name=name,
        config_hash=content,
        started_from=inputs.parent.state if inputs and inputs.parent else None,
    )
    return await record_status(client, run, status), rendered


async def create_missing(view: View, client: RunClient) -> View:
    """Create what an interrupted start left out. The frozen version is what runs, whatever was edited since."""
    run = view.run
    _require_own_status(run)
    if templates := await frozen_templates(view, client):
        await create_network(run, templates, client)
        await client.read_run(run.key)  # nothing was written just now that would show what is live
        return await _create_pod(view, templates, client)
    rendered = await render(view, None, client)
    if rendered.config_hash != run.status.config_hash:
        if run.status.attempts:
            name = f"ConfigMap {run.metadata.namespace}/{run.status.config_map_name}"
            raise InvalidError(
                f"{name} was deleted, and runtime or environment are not what they were: start a new run in place of "
                "this one, with spec.startFrom"
            )
        view = replace(view, run=await _freeze_again(run, rendered, client))
    return await _create_children(view, rendered, client)


async def ungate(view: View, pod: PodObservation, client: RunClient) -> View:
    """Let it start; before that, a run that gave its slot back takes one in its status: whoever reads it counts it."""
    view = replace(view, queue_position=client.queue_position(view.run))
    if must_wait(view):
        return view
    if view.run.status.queue is not None:
        with client.slot_claimed(view.run):
            view = replace(view, run=await client.write_status(view.run, view.run.status.with_changes(queue=None)))
    await client.remove_gates(pod)
    return view


def _require_own_status(run: TrainingRun) -> None:
    """A restored run whose mark was removed before anything saw it looks as if its attempt had just begun."""
    named, own = run.status.pod_name, pod_name(run, run.status.attempt or 1)
    if named != own:
        raise InvalidError(
            f"the status is of another run of this name (its pod is {named}, this one's would be {own}): delete the "
            "run and create it again without its status"
        )


async def require_alive(run: TrainingRun, client: RunClient) -> None:
    """Children that vanish may be the first sign that their run did, during a gap in its watch. Raises GoneError."""
    live = await client.read_run(run.key)
    if live is None or live.metadata.uid != run.metadata.uid:
        raise GoneError(f"run {run.metadata.namespace}/{run.metadata.name} is gone")


def any_vanishes(pods: Iterable[PodObservation]) -> bool:
    """Whether a pod is deleted that had not ended. Those that end by themselves do not count."""
    return any(pod.deleting and not pod.over for pod in pods)


async def _create_children(view: View, rendered: Rendered, client: RunClient) -> View:
    for config_map in rendered.config_maps:
        await client.create_child(config_map)
    await create_network(view.run, rendered.templates, client)
    return await _create_pod(view, rendered.templates, client)


async def create_network(run: TrainingRun, templates: Templates, client: RunClient) -> None:
    """Create the missing parts; without environments in other pods, there is one."""
    apart = templates.network if run.status.environments is not None else ()
    await _create_absent(run, [ops_policy(run, client.ops_peers), *apart], client)


async def _create_absent(run: TrainingRun, children: Iterable[KubernetesObject], client: RunClient) -> None:
    there = client.children(run.key)
    for child in children:
        if (child["kind"], child["metadata"]["name"]) not in there:
            await client.create_child(child)


async def _create_pod(view: View, templates: Templates, client: RunClient) -> View:
    """Create the current attempt's pod unless the last look forbids it: from here on it costs money.

    The cache holds the run as it was just written or read, or as a watch has reported it since.
    """
    live = client.run(view.run.key)
    if live is None or not _may_start(live, view.run):
        return view
    exposed = live.status.environments is not None
    token = ops_token_env_var(secrets.token_urlsafe())
    continued = [*checkpoint_env_vars(live), *cost_env_vars(live), token]
    share = share_env_vars(live, EVALUATOR)  # of the environment in the run's own pod
    by_slots, attempt = view.queue_position is not None, live.status.attempt or 1
    pod = pod_of_attempt(templates.pod, attempt, exposed=exposed, by_slots=by_slots, continued=continued, share=share)
    await client.create_child(pod)
    return replace(view, run=live)


async def _freeze_again(run: TrainingRun, rendered: Rendered, client: RunClient) -> TrainingRun:
    """The runtime changed after the freeze and before anything was created: freeze what will actually run."""
    name = config_map_name(run, rendered.config_hash)
    status = run.status.with_changes(
        config_map_name=name, config_hash=rendered.config_hash, frozen=frozen_settings(run.spec)
    )
    return await record_status(client, run, status)


def _may_start(live: TrainingRun, run: TrainingRun) -> bool:
    same = live.metadata.uid == run.metadata.uid and live.metadata.deletion_timestamp is None
    return same and not live.spec.suspend and live.status.attempt == run.status.attempt


async def reconcile_sandbox_pods(view: View, client: RunClient) -> None:
    """Delete what has a successor, so that a quota has room, then create what is missing, step by step."""
    plan = plan_sandboxes(view)
    for each in plan.delete:
        await client.delete_pod(each)
    walls = sandbox_network_names(view.run) if view.run.spec.sandbox is not None else frozenset()
    if plan.create or _lacks(view, walls, client):
        if not plan.create or any_vanishes(view.sandboxes):
            await require_alive(view.run, client)
        templates = await frozen_templates(view, client)
        if templates is None or templates.sandbox is None:
            name = f"ConfigMap {view.run.metadata.namespace}/{view.run.status.config_map_name}"
            what = "is gone" if templates is None else "holds no sandboxes: the runtime had none when the run started"
            raise InvalidError(f"{name} {what}; the run gets no new ones, so start a new run in its place")
        await _create_absent(view.run, templates.sandbox_network, client)
        for place in plan.create:
            pod = sandbox_pod(templates.sandbox, view.run.status.attempt or 1, place.slot, place.incarnation)
            await client.create_child(pod)


def _lacks(view: View, names: AbstractSet[tuple[str, str]], client: RunClient) -> bool:
    """Whether any of these children needs to be created again while the run trains, as far as the caches know."""
    return view.training and not names <= client.children(view.run.key)


async def restore_ops_policy(view: View, client: RunClient) -> None:
    if _lacks(view, {("NetworkPolicy", ops_policy_name(view.run))}, client):
        await require_alive(view.run, client)
        await client.create_child(ops_policy(view.run, client.ops_peers))


async def reconcile_environment_pods(view: View, client: RunClient) -> None:
    """Delete what is not needed, create what is missing, step by step: any step may be the last."""
    plan = plan_environments(view)
    for pod in plan.delete:
        await client.delete_pod(pod)
    network = network_names(view.run) if view.run.status.environments is not None else frozenset()
    if not plan.create and not _lacks(view, network, client):
        return
    if not plan.create or any_vanishes(view.environments):
        await require_alive(view.run, client)
    templates = await frozen_templates(view, client)
    if templates is None:
        name = view.run.status.config_map_name
        raise InvalidError(f"ConfigMap {view.run.metadata.namespace}/{name} is gone: {CONSEQUENCE}")
    await create_network(view.run, templates, client)
    if plan.create:
        await require_source(view, templates, client)
    for place in plan.create:
        assert view.pod is not None, "environments follow the run's pod"
        assert view.pod.address is not None, "and wait for its address"
        where = (view.run.status.attempt or 1, place.slot, place.incarnation)
        share = share_env_vars(view.run, place.slot)
        await client.create_child(environment_pod(templates.environment, *where, view.pod.address, share=share))
