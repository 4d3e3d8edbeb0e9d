"""One reconcile: load, check, render, apply, observe, derive, report.

Safe to repeat and to abandon at any point: what happened is read from the objects, never remembered. The order of
effects is the safety: status (freezes the run) -> ConfigMap and a live read -> Pod; at the end status -> finalizer.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rl_operator.api.premises import Premises
from rl_operator.api.refusal import Refusal
from rl_operator.api.run import RunStatus, TrainingRun
from rl_operator.check import check_run, runtime_invalid, runtime_not_found
from rl_operator.errors import ForbiddenError, InvalidError, NameTakenError
from rl_operator.reconcile.premises import gather_premises
from rl_operator.reconcile.world import Key, World
from rl_operator.render import Rendered, config_map_name, pod_name, pod_of_attempt, render_run, template_of
from rl_operator.status.derive import derive, started, worth_writing
from rl_operator.status.frozen import frozen_refusals, frozen_settings
from rl_operator.status.lifecycle import Verb, decide, find, next_look
from rl_operator.status.observation import PodObservation
from rl_operator.status.table import Situation
from rl_operator.status.view import Finding, View

TROUBLE_SECONDS = 5.0
"""How soon a refused write (name taken, quota, admission) is tried again."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient a back end is: seconds before the second attempt, and between two writes of mere progress."""

    backoff_seconds: float
    progress_seconds: float


async def reconcile(key: Key, world: World, clock: Callable[[], datetime], pace: Pace) -> float | None:
    """Bring one run a step closer to its end. Returns in how many seconds to look again; None: on events only."""
    run = world.run(key)
    await _release_foreign_pods(key, run, world)
    if run is None or run.metadata.deletion_timestamp is not None:
        return None
    if run.status.finished:
        await _release_ended_pods(run, world)
        return None

    premises = None if run.status.start_time else await gather_premises(run, world, clock())
    view = _observe(run, premises, world, clock, pace)
    view = await _apply(view, decide(view), premises, world)
    finding = find(view)
    unwritten = await _report(view, finding, world, pace)
    return _soonest(
        next_look(view, finding),
        pace.progress_seconds if unwritten else None,
        TROUBLE_SECONDS if view.trouble else None,
    )


def _observe(
    run: TrainingRun, premises: Premises | None, world: World, clock: Callable[[], datetime], pace: Pace
) -> View:
    """Gather what the caches know of a run. After the start its premises do not matter any more."""
    pod = next((p for p in world.pods(run.key) if _owns(run, p) and p.name == run.status.pod_name), None)
    trainer = world.trainer_status(pod) if pod and not pod.over else None
    view = View(run, clock(), pace.backoff_seconds, pod, trainer)
    if run.status.start_time:
        return replace(view, refusals=frozen_refusals(run))
    if premises is None:
        return replace(view, refusals=(_no_runtime(run, world),))
    return replace(view, refusals=check_run(run, premises), pending=premises.environment.pending)


def _no_runtime(run: TrainingRun, world: World) -> Refusal:
    fault = world.unreadable_runtime(run.spec.runtime)
    return runtime_invalid(run, fault) if fault else runtime_not_found(run, world.runtime_names())


async def _apply(view: View, verb: Verb, premises: Premises | None, world: World) -> View:
    """Do what `decide` said. Gives back the view as it is afterwards."""
    try:
        match verb:
            case Verb.RENDER:
                return replace(view, config_hash=(await _render(view, premises, world)).config_hash)
            case Verb.START:
                return await _start(view, premises, world)
            case Verb.CREATE:
                return await _create_missing(view, world)
            case Verb.STOP if view.pod is not None:
                await world.delete_pod(view.pod)
    except NameTakenError as error:
        trouble = ("NameTaken", str(error))
    except (ForbiddenError, InvalidError) as error:
        trouble = ("CreationRefused", str(error))
    else:
        return view
    # The status may have been written before the child was refused: go on from there.
    return replace(view, run=world.run(view.run.key) or view.run, trouble=trouble)


async def _start(view: View, premises: Premises | None, world: World) -> View:
    """Freeze the run and begin its next attempt. The first write is the lock: whoever loses it starts nothing."""
    run, rendered = view.run, None
    if run.status.config_map_name is None:
        rendered = await _render(view, premises, world)
        attempt, name, content = 1, config_map_name(run, rendered.config_hash), rendered.config_hash
    else:
        attempt = (run.status.attempt or 0) + 1
        name, content = run.status.config_map_name, run.status.config_hash or ""
    status = started(
        view,
        attempt=attempt,
        pod_name=pod_name(run, attempt),
        config_map_name=name,
        config_hash=content,
        started_from=premises.parent.state if premises and premises.parent else None,
    )
    frozen = await world.write_status(run, status)
    world.record_event(frozen, "Normal", "Starting", f"Attempt {attempt} starts in pod {status.pod_name}.")
    view = replace(view, run=frozen, pod=None)
    return await (_create_children(view, rendered, world) if rendered else _create_missing(view, world))


async def _create_missing(view: View, world: World) -> View:
    """Create what an interrupted start left out. What was frozen is what runs, whatever was edited since."""
    run = view.run
    existing = await world.read_config_map(run.metadata.namespace, run.status.config_map_name or "")
    if existing is not None:
        await _create_pod(run, await world.read_run(run.key), template_of(existing), world)
        return view
    rendered = await _render(view, None, world)
    if rendered.config_hash != run.status.config_hash:
        view = replace(view, run=await _freeze_again(run, rendered, world))
    return await _create_children(view, rendered, world)


async def _create_children(view: View, rendered: Rendered, world: World) -> View:
    # The last look at the run does not wait for the ConfigMap, which costs nothing.
    _, live = await asyncio.gather(world.create_child(rendered.config_map), world.read_run(view.run.key))
    await _create_pod(view.run, live, rendered.pod, world)
    return view


async def _create_pod(run: TrainingRun, live: TrainingRun | None, template: Mapping[str, Any], world: World) -> None:
    """Create the current attempt's pod unless the last look forbids it: from here on it costs money."""
    if live is not None and _may_start(live, run):
        await world.create_child(pod_of_attempt(template, run.status.attempt or 1))


async def _freeze_again(run: TrainingRun, rendered: Rendered, world: World) -> TrainingRun:
    """The runtime changed after the freeze and before anything was created: freeze what will really run."""
    name = config_map_name(run, rendered.config_hash)
    status = run.status.with_changes(
        config_map_name=name, config_hash=rendered.config_hash, frozen=frozen_settings(run.spec)
    )
    return await world.write_status(run, status)


async def _render(view: View, premises: Premises | None, world: World) -> Rendered:
    """Render from what the run was checked against, or, after an interrupted start, from what is there now."""
    run = view.run
    premises = premises or await gather_premises(run, world, view.now)
    if premises is None:
        raise InvalidError(f"the runtime {run.spec.runtime!r} is gone: create it again, or delete the run")
    if premises.environment.known is None:
        raise InvalidError(f"the environment {run.spec.environment!r} is gone: create it again, or delete the run")
    return render_run(run, premises)


def _may_start(live: TrainingRun, run: TrainingRun) -> bool:
    same = live.metadata.uid == run.metadata.uid and live.metadata.deletion_timestamp is None
    return same and not live.spec.suspend and live.status.attempt == run.status.attempt


async def _report(view: View, finding: Finding, world: World, pace: Pace) -> bool:
    """Write the status when it says something new, and let go of a pod whose end is recorded.

    Returns whether news of mere progress was left for later.
    """
    previous, status = view.run.status, derive(view, finding)
    worth = worth_writing(previous, status, view.now, pace.progress_seconds)
    if worth:
        await world.write_status(view.run, status)
        _tell(view.run, status, finding, world)
    if finding.ending and view.pod and view.pod.held:
        await world.release_pod(view.pod)
    return status != previous and not worth


def _tell(run: TrainingRun, status: RunStatus, finding: Finding, world: World) -> None:
    """One event per change of a condition's reason."""
    before = {(c.type, c.reason) for c in run.status.conditions}
    if all((c.type, c.reason) in before for c in status.conditions):
        return
    bad = finding.situation in (Situation.REFUSED, Situation.FAILED) or status.failure != run.status.failure
    world.record_event(run, "Warning" if bad else "Normal", finding.reason, finding.message)


async def _release_ended_pods(run: TrainingRun, world: World) -> None:
    for pod in world.pods(run.key):
        if pod.held and _owns(run, pod):
            await world.release_pod(pod)


async def _release_foreign_pods(key: Key, run: TrainingRun | None, world: World) -> None:
    """Let go of pods whose run is gone: nobody will ever read their result."""
    held = [pod for pod in world.pods(key) if pod.held and not _owns(run, pod)]
    if held and run is None:
        run = await world.read_run(key)  # the cache may lag behind a run that was applied again
    for pod in held:
        if not _owns(run, pod):
            await world.release_pod(pod)


def _owns(run: TrainingRun | None, pod: PodObservation) -> bool:
    return run is not None and run.metadata.deletion_timestamp is None and pod.run_uid == run.metadata.uid


def _soonest(*delays: float | None) -> float | None:
    return min((delay for delay in delays if delay is not None), default=None)
