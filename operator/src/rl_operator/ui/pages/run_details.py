"""What a run's page loads when it is asked for: the config and the log. Each is a page of its own, too."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rl_operator.api.names import TRAINER_CONTAINER
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import parse_stored_run
from rl_operator.operator_errors import OperatorError
from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of
from rl_operator.targets.inputs.parameters import SettableField, fields_of
from rl_operator.targets.runs.run_lookup import container_named, existing_run
from rl_operator.targets.runs.run_text import flags_for
from rl_operator.targets.runs.trained_settings import TrainedSettings
from rl_operator.targets.target import Target
from rl_operator.ui.pages.run_page import PROGRAM, RUN, run_key
from rl_operator.ui.ui_context import asked, context_of, visitor_of
from rl_operator.ui.views.config_rows import ORIGINS, config_rows, run_file
from rl_operator.ui.views.page_text import log_text, short

TAIL: Final = 200


async def show_config(request: Request) -> Response:
    return _answer(request, "run_config", await asked(_config, visitor_of(request).target, *run_key(request)))


async def show_log(request: Request) -> Response:
    """`?container=NAME`: its last lines."""
    container = request.query_params.get("container", TRAINER_CONTAINER)
    values = await asked(_log, visitor_of(request).target, *run_key(request), container)
    return _answer(request, "run_log", values)


def _answer(request: Request, template: str, values: dict[str, Any]) -> Response:
    """The page, or for a script of the run's page only the part: `?part=1`."""
    namespace, name = run_key(request)
    path = f"{quote(namespace, safe='')}/{quote(name, safe='')}"
    shared = {"title": f"{name}: {values['subject']}", "namespace": namespace, "name": name, "path": path}
    file = f"{template}.html" if "part" in request.query_params else "run_part.html"
    return context_of(request).page(request, file, {**shared, "part": f"{template}.html", **values})


def _config(target: Target, namespace: str, name: str) -> dict[str, Any]:
    manifest = existing_run(target, namespace, name)
    run = parse_stored_run(manifest)
    fields, missing = _fields(run, target)
    return {
        "subject": "config",
        "rows": config_rows(run, fields, TrainedSettings(target).of(run)),
        "origins": ORIGINS,
        "missing": missing,
        "yaml": run_file(run, manifest["spec"]),
        "command": f"{PROGRAM} run {name}.yaml{flags_for(target, namespace)}",
    }


def _fields(run: TrainingRun, target: Target) -> tuple[Sequence[SettableField], str]:
    """What may be set, and if that is not known, why not."""
    try:
        inputs = inputs_of(run, FileInputs(target))
    except OperatorError as error:
        return (), str(error)
    if inputs is None:
        return (), f"runtime {run.spec.runtime} does not exist any more"
    if inputs.environment.known is None:
        pending = inputs.environment.pending
        return (), pending[1] if pending else f"environment {run.spec.environment} is not known here any more"
    return fields_of(inputs.environment.known, inputs.runtime), ""


def _log(target: Target, namespace: str, name: str, container: str) -> dict[str, Any]:
    run = parse_stored_run(existing_run(target, namespace, name))
    known = [short(each.name, 64) for each in run.status.containers] or [TRAINER_CONTAINER]
    pod, of_pod = container_named(target, namespace, name, container)
    lines = log_text(target.log_lines(namespace, pod, of_pod, tail=TAIL, follow=False))
    containers = known if container in known else [*known, container]
    return {"subject": "log", "container": container, "containers": containers, "lines": lines, "tail": TAIL}


ROUTES = [Route(f"{RUN}/config", show_config), Route(f"{RUN}/log", show_log)]
