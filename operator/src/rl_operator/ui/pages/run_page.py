"""One run: what happens, its curves, and what can be done with it.

Its config and its log are loaded when they are asked for, and are pages of their own, too.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import TRAINER_CONTAINER
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import parse_stored_run
from rl_operator.operator_errors import OperatorError
from rl_operator.status.text.figure_text import duration
from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of
from rl_operator.targets.inputs.parameters import SettableField, fields_of
from rl_operator.targets.local_target import install_requirements
from rl_operator.targets.runs.run_control import Offer, offer_of, resume_run, stop_run
from rl_operator.targets.runs.run_lookup import container_named, events_seen, existing_run
from rl_operator.targets.runs.run_text import flags_for, weight_commands
from rl_operator.targets.runs.trained_settings import TrainedSettings
from rl_operator.targets.target import Target
from rl_operator.ui.preparations import Preparation, Preparations, Progress
from rl_operator.ui.run_curves import EVERYTHING
from rl_operator.ui.ui_context import asked, context_of, run_key, visitor_of
from rl_operator.ui.views.config_rows import ORIGINS, config_rows, run_file
from rl_operator.ui.views.page_text import log_line, short
from rl_operator.ui.views.run_facts import (
    RunHead,
    attempt_rows,
    condition_rows,
    marks_of,
    run_events,
    run_head,
    weights_rows,
)

PROGRAM: Final = "rlctl"
SHOWN_EVENTS: Final = 100
TAIL: Final = 200
"""Lines of a log."""

ReadCurves = Callable[[Target, TrainingRun], dict[str, Any]]

WORDS: Final = {"stop": "Stop, with a checkpoint", "resume": "Resume"}
WORDS_BEFORE: Final = {"stop": "Make it a draft", "resume": "Start"}


async def show_run(request: Request) -> Response:
    """The page, or for a script of the page only what changes while the run is trained: `?part=live`."""
    namespace, name = run_key(request)
    part = request.query_params.get("part") == "live"
    preparations = context_of(request).preparations
    values = await asked(_values, visitor_of(request).target, preparations, namespace, name)
    return context_of(request).page(request, "run_live.html" if part else "run.html", values)


def _values(target: Target, preparations: Preparations, namespace: str, name: str) -> dict[str, object]:
    manifest = existing_run(target, namespace, name)
    target.look_after(namespace, name)
    run = parse_stored_run(manifest)
    lines, unseen = events_seen(target, run)
    events = run_events(lines)
    flags = flags_for(target, namespace)
    head, offer = _prepared(run_head(run, datetime.now(UTC)), offer_of(manifest), preparations.of(run.metadata.uid))
    return {
        "title": name,
        "namespace": namespace,
        "name": name,
        "path": f"{quote(namespace, safe='')}/{quote(name, safe='')}",
        "head": head,
        "offer": replace(offer, warning=offer.warning.removeprefix("warning: ")) if offer else None,
        "offer_words": WORDS if run.status.start_time else WORDS_BEFORE,
        "marks": marks_of(run, events),
        "weights": list(weights_rows(run)),
        "commands": weight_commands(run, PROGRAM, flags) if run.status.weights or run.status.checkpoint else {},
        "expiry_days": run.spec.trainer.get("checkpoint_ttl_days"),
        "attempts": list(attempt_rows(run)),
        "conditions": list(condition_rows(run)),
        "events": events[-SHOWN_EVENTS:],
        "unseen": unseen,
    }


def _prepared(head: RunHead, offer: Offer | None, preparation: Preparation | None) -> tuple[RunHead, Offer | None]:
    """What is said, and what can be done, while a run is prepared, and after that has failed."""
    if preparation is None or offer is None or offer.action != "resume":
        return head, offer
    if preparation.fault:
        why = " ".join(preparation.fault.split())
        return replace(head, failure=short(f"It did not start: {why}"), failed_container=""), offer
    seconds = duration(time.monotonic() - preparation.began)
    step = f": {preparation.step}" if preparation.step else ""
    return replace(head, sentence=short(f"Its packages are being installed, {seconds} so far{step}")), None


async def send_points(request: Request) -> Response:
    """Columns of all curves, as JSON: `?after=STEP&attempt=N` gives what a page that has those lacks; with `all=1` even
    if a pod must be started for it.
    """
    namespace, name = run_key(request)
    query = request.query_params
    after, attempt = number(query.get("after"), EVERYTHING), number(query.get("attempt"), 0)
    at_any_cost = query.get("all") == "1"
    read = partial(context_of(request).curves.points, after=after, attempt=attempt, at_any_cost=at_any_cost)
    body = await asked(_points, visitor_of(request).target, read, namespace, name)
    return Response(body, media_type="application/json")


def _points(target: Target, read: ReadCurves, namespace: str, name: str) -> bytes:
    """NaN is null."""
    run = parse_stored_run(existing_run(target, namespace, name))
    events = run_events(events_seen(target, run)[0])
    return orjson.dumps({**read(target, run), "marks": marks_of(run, events)})


async def change_run(request: Request) -> Response:
    """Stop or resume it, as rlctl does, and show it again."""
    namespace, name = run_key(request)
    target, context = visitor_of(request).target, context_of(request)
    if request.url.path.endswith("/stop"):
        await asked(stop_run, target, namespace, name, target.note)
    else:
        tell = partial(context.streams.tell, frozenset({(namespace, name)}))
        changed = partial(asyncio.get_running_loop().call_soon_threadsafe, tell)
        await asked(_resume, target, namespace, name, context.preparations, changed)
    return RedirectResponse(f"{context.root}/runs/{quote(namespace)}/{quote(name)}", 303)


def _resume(target: Target, namespace: str, name: str, preparations: Preparations, changed: Callable[[], None]) -> None:
    """At once, unless its environment needs packages first."""
    manifest = existing_run(target, namespace, name)
    offer, run = offer_of(manifest), parse_stored_run(manifest)

    def resume(progress: Progress) -> None:
        def install(stored: Manifest) -> None:
            install_requirements(target, parse_stored_run(stored), (), lambda _: nullcontext(progress))

        resume_run(target, namespace, name, install, target.note)

    if offer is not None and offer.action == "resume" and target.missing_packages(run):
        preparations.begin(run.metadata.uid, resume, changed)
    else:
        resume(lambda _: None)


async def show_config(request: Request) -> Response:
    return _answer(request, "run_config", await asked(_config, visitor_of(request).target, *run_key(request)))


async def show_log(request: Request) -> Response:
    """`?container=NAME`: its last lines."""
    container = request.query_params.get("container", TRAINER_CONTAINER)
    values = await asked(_log, visitor_of(request).target, *run_key(request), container)
    return _answer(request, "run_log", values)


def _answer(request: Request, template: str, values: dict[str, object]) -> Response:
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


def _log(target: Target, namespace: str, name: str, container: str) -> dict[str, object]:
    run = parse_stored_run(existing_run(target, namespace, name))
    known = [short(each.name, 64) for each in run.status.containers] or [TRAINER_CONTAINER]
    pod, of_pod = container_named(target, namespace, name, container)
    lines = [*map(log_line, target.log_lines(namespace, pod, of_pod, tail=TAIL, follow=False))]
    containers = known if container in known else [*known, container]
    return {"subject": "log", "container": container, "containers": containers, "lines": lines, "tail": TAIL}


def number(given: str | None, otherwise: int) -> int:
    return int(given) if given and given.isdecimal() and len(given) < 10 else otherwise


RUN: Final = "/runs/{namespace}/{name}"
ROUTES = [
    Route(RUN, show_run),
    Route(f"{RUN}/points", send_points),
    Route(f"{RUN}/config", show_config),
    Route(f"{RUN}/log", show_log),
    Route(f"{RUN}/stop", change_run, methods=["POST"]),
    Route(f"{RUN}/resume", change_run, methods=["POST"]),
]
