"""What others removed from a run that has started: detect it, and restore it (`drift`)."""

from dataclasses import replace

from rl_operator.api.names import ATTEMPT_LABEL, TRAINING_COMPONENT
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import ForbiddenError, InvalidError, NameTakenError
from rl_operator.reconcile.attempt_steps import EnvironmentUnreadError, render, require_alive
from rl_operator.reconcile.run_client import RunClient
from rl_operator.render.labels import pod_labels
from rl_operator.status.attempt.attempt_outcome import vanished
from rl_operator.status.attempt.pod_cleanup import with_loss
from rl_operator.status.attempt.restored import is_restored, repaired
from rl_operator.status.attempt.view import View


async def put_right(run: TrainingRun, client: RunClient) -> TrainingRun:
    """Restore what the pods know better than a status that someone edited."""
    status = repaired(run.status, (pod for pod in client.pods(run.key) if pod.run_uid == run.metadata.uid))
    return run if status is run.status else await client.write_status(run, status)


async def look_for_pod(view: View, client: RunClient) -> View:
    """Before treating a running pod as gone: the cache may lag behind, or its labels or owner may have been removed."""
    run, name = view.run, view.run.status.pod_name
    if name is None or not vanished(view):
        return view
    pod = await client.read_pod(run.metadata.namespace, name)
    if pod is None:
        return view
    if pod.run_uid != run.metadata.uid:
        sentence = (
            f"Pod {pod.namespace}/{name} exists and no longer belongs to this run: delete it, and the run continues"
        )
        return replace(view, trouble=("NameTaken", sentence))
    labels = pod_labels(run, TRAINING_COMPONENT) | {ATTEMPT_LABEL: str(run.status.attempt or 1)}
    await client.label_pod(pod, labels)
    return replace(view, pod=with_loss(replace(pod, attempt=run.status.attempt or 1), view.now))


async def restore_config(view: View, client: RunClient) -> View:
    """Restore the ConfigMaps of a run whose first pod was created. Notes in the view if they cannot be rendered.

    Raises GoneError if they are gone because the run is.
    """
    run, name = view.run, view.run.status.config_map_name
    being_created = view.pod is None and not view.last_attempt
    if (
        name is None
        or not view.started
        or is_restored(run)
        or being_created
        or ("ConfigMap", name) in client.children(run.key)
    ):
        return view
    await require_alive(run, client)
    lost = f"ConfigMap {run.metadata.namespace}/{name} was deleted"
    try:
        rendered = await render(view, None, client)
        if rendered.config_hash != run.status.config_hash:
            return replace(view, config_lost=f"{lost}, and runtime or environment are not what they were")
        for config_map in rendered.config_maps:
            await client.create_child(config_map)
    except (InvalidError, EnvironmentUnreadError) as error:
        return replace(view, config_lost=f"{lost}, and cannot be rendered again: {error}")
    except NameTakenError as error:
        return replace(view, trouble=("NameTaken", str(error)))
    except ForbiddenError as error:
        return replace(view, trouble=("CreationRefused", str(error)))
    return view
