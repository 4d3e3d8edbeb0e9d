"""What a run is checked against and rendered from, including the run that it starts from; and where that work is done.

Checking and rendering are pure work on what users wrote. For the largest documents it takes some tenths of a second: a
thread does it, one document at a time, and the loop goes on. For small ones it takes less than the way to the thread
and back. Both are Python and share the interpreter's lock: they take turns, as often as `sys.setswitchinterval` says.
That the work ends is due to the limits of documents (`api/settings/size_limits.py`, `MAX_REFUSALS`), not to the thread.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final, ParamSpec, TypeVar

from rl_operator.api.model import ObservedModel
from rl_operator.api.run_inputs import ParentRun, RunInputs, choose_environment
from rl_operator.api.runtime import Runtime
from rl_operator.api.settings.fields import TRAINER_FIELDS, flattened
from rl_operator.api.settings.size_limits import are_small
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.lineage import ParentAdapter, adapter_of, describe_parent
from rl_operator.check.run_check import Same
from rl_operator.documents.yaml_text import read_yaml
from rl_operator.operator_errors import NameTakenError, TemplateChangedError
from rl_operator.reconcile.run_client import InputSource
from rl_operator.render.container_template import CONFIG_KEY
from rl_operator.render.frozen_texts import frozen_texts

P = ParamSpec("P")
T = TypeVar("T")


async def gather_inputs(run: TrainingRun, client: InputSource, now: datetime) -> RunInputs | None:
    """From the caches, except for a finished parent; None if the run's runtime does not exist."""
    runtime = client.runtime(run.spec.runtime)
    if runtime is None:
        return None
    own = await client.environment(run)
    catalog = client.catalog(runtime)
    return RunInputs(
        runtime=runtime,
        environment=choose_environment(run.spec.environment, runtime, catalog, own),
        namespace_labels=client.namespace_labels(run.metadata.namespace),
        parent=await gather_parent(run, client, now),
    )


class _Sections(ObservedModel):
    """A config file, as far as it says what was trained."""

    env: dict[str, Any]
    openai: tuple[dict[str, Any], ...] = ()
    tinker: dict[str, object]


async def gather_parent(run: TrainingRun, source: InputSource, now: datetime) -> ParentRun | None:
    """What `spec.startFrom.run` names; None if it names nothing. A start is frozen: it holds whatever happens later.

    Two live reads if that run is over: the caches keep next to nothing about those.
    """
    name = run.spec.start_from.run if run.spec.start_from else None
    if name is None:
        return None
    if run.status.started_from is not None:
        return ParentRun(name, exists=True, state=run.status.started_from)
    key = (run.metadata.namespace, name)
    parent = source.run(key)
    if parent is not None and parent.status.finished:
        parent = await source.read_run(key)
    if parent is None or parent.metadata.deletion_timestamp is not None:
        return ParentRun(name, exists=False)
    try:
        return describe_parent(parent, await _trained(parent, source), now)
    except (NameTakenError, TemplateChangedError) as error:
        return describe_parent(parent, None, now, unknown_because=str(error))


async def _trained(parent: TrainingRun, source: InputSource) -> ParentAdapter | None:
    """What a finished run trained, by the config that was frozen at its start. Raises as `frozen_texts` does."""
    name = parent.status.config_map_name
    if not parent.status.finished or name is None:
        return None
    config_map = await source.read_config_map(parent.metadata.namespace, name)
    return _adapter_in(frozen_texts(config_map, parent)) if config_map else None


def _adapter_in(texts: Mapping[str, str]) -> ParentAdapter | None:
    """None if there is no config file of ours among them."""
    try:
        [document] = read_yaml(texts[CONFIG_KEY])
        sections = _Sections.model_validate(document)
    except (KeyError, ValueError):
        return None
    return adapter_of(sections.env, sections.openai[0] if sections.openai else {}, sections.tinker)


MAX_KNOWN: Final = 200
"""Fields of an environment."""

_THREAD: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="documents")


async def off_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(work, *args, **kwargs))


def is_quick(run: TrainingRun, inputs: RunInputs) -> bool:
    """Whether check and rendering take about a millisecond. The search for what a misspelled name meant does not."""
    known, spec = inputs.environment.known, run.spec
    if known is None or inputs.environment.own or len(known.fields) > MAX_KNOWN:
        return False
    names = known.fields_by_name.keys()
    known_fields = ((spec.config, names), (spec.trainer, TRAINER_FIELDS.keys()))
    spelled = all(flattened(given, fields).keys() <= fields for given, fields in known_fields)
    return spelled and are_small(spec.config, spec.trainer) and _is_small(Same(inputs.runtime))


@lru_cache(maxsize=64)
def _is_small(runtime: Same[Runtime]) -> bool:
    return are_small(runtime.model.spec.to_wire())
