"""What a run was frozen as, read and verified, or rendered again: nothing is made from anything else."""

from collections.abc import Mapping
from typing import Final

from rl_operator.api.kubernetes_objects import ConfigMapObject
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.status_fields import FrozenSettings
from rl_operator.documents.source_files import source_hash
from rl_operator.operator_errors import InvalidError, OperatorError, TemplateChangedError
from rl_operator.reconcile.inputs import gather_inputs, is_quick, off_loop
from rl_operator.reconcile.run_client import RunClient
from rl_operator.render.environment_pod import source_of
from rl_operator.render.frozen_texts import WRITTEN_AGAIN, differences, frozen_texts
from rl_operator.render.manifests import Rendered, Templates, render_run, templates_of
from rl_operator.status.attempt.view import View

CONSEQUENCE: Final = "without it the run gets no new environment pods; start a new run in its place"


class EnvironmentUnreadError(OperatorError):
    """The files of an own environment are not those that its status describes: wait until they are read."""


async def render(view: View, inputs: RunInputs | None, client: RunClient) -> Rendered:
    """Render from what the run was checked against, or, after an interrupted start, from what exists now."""
    run = view.run
    if any(map(run.is_unread, FrozenSettings.model_fields)):  # what it has there is not what it started with
        raise InvalidError(f"the spec is too large to be read: {' '.join(f.sentence for f in run.faults)}")
    inputs = inputs or await gather_inputs(run, client, view.now)
    if inputs is None:
        raise InvalidError(f"the runtime {run.spec.runtime!r} is gone: create it again, or delete the run")
    if inputs.environment.pending:
        raise EnvironmentUnreadError(inputs.environment.pending[1])
    if inputs.environment.known is None:
        raise InvalidError(f"the environment {run.spec.environment!r} is gone or broken: fix it, or delete the run")
    if is_quick(run, inputs):
        return render_run(run, inputs)
    return await off_loop(render_run, run, inputs, await _read_files(inputs, client))


async def _read_files(inputs: RunInputs, client: RunClient) -> Mapping[str, str] | None:
    """The files of an own environment: exactly those that were read, so that nothing unread ever starts."""
    own = inputs.environment.own
    if own is None or own.spec.source is None:
        return None
    files = await client.read_files(own)
    if files is None or source_hash(files) != own.status.source_hash:
        raise EnvironmentUnreadError(f"Waiting for RLEnvironment {own.metadata.name!r}: its files are being read.")
    return files


async def frozen_templates(view: View, client: RunClient) -> Templates | None:
    """The content of the run's own ConfigMap; None: it is gone.

    Raises NameTakenError if it belongs to someone else, TemplateChangedError if it is not what the run started with.
    """
    run = view.run
    config_map = await client.read_config_map(run.metadata.namespace, run.status.config_map_name or "")
    if config_map is None:
        return None
    try:
        templates = templates_of(config_map, run)
    except TemplateChangedError as error:
        raise await _with_repair(error, config_map, view, client) from error
    client.hold_verified(config_map)
    return templates


async def _with_repair(
    error: TemplateChangedError, config_map: ConfigMapObject, view: View, client: RunClient
) -> TemplateChangedError:
    """The same, with what differs, as far as that can be known, and what to do about it."""
    same, how = await _rendered_again(view, client), ""
    if same:
        name, repair = config_map["metadata"]["name"], WRITTEN_AGAIN
        texts = next((each["data"] for each in same.config_maps if each["metadata"]["name"] == name), None)
        how = f" ({differences(config_map, texts)})" if texts is not None else ""
    elif view.pod is None and not view.run.status.attempts:
        repair = "delete it, and the run starts from its runtime and environment as they are now"
    else:
        repair = (
            "it cannot be written again, because runtime or environment are not what they were, so start a new run in "
            "its place, with spec.startFrom"
        )
    return TemplateChangedError(f"{error}{how}. Nothing is made from it: {repair}.")


async def _rendered_again(view: View, client: RunClient) -> Rendered | None:
    """What the run was started with; None if that cannot be rendered anymore."""
    try:
        rendered = await render(view, None, client)
    except (InvalidError, EnvironmentUnreadError):
        return None
    return rendered if rendered.config_hash == view.run.status.config_hash else None


async def require_source(view: View, templates: Templates, client: RunClient) -> None:
    """The frozen files of an own environment are there, and are those that the run was started with: a pod whose
    ConfigMap is gone would wait forever and not report why. They are restored if they can be.
    """
    source = source_of(templates.environment)
    if source is None:
        return
    run, (name, sha256) = view.run, source
    config_map = await client.read_config_map(run.metadata.namespace, name)
    if config_map is None:
        same = await _rendered_again(view, client)
        if same is None or same.source is None:
            raise InvalidError(f"ConfigMap {run.metadata.namespace}/{name} is gone: {CONSEQUENCE}")
        await client.create_child(same.source)
        return
    try:
        frozen_texts(config_map, run, sha256)
    except TemplateChangedError as error:
        raise await _with_repair(error, config_map, view, client) from error
