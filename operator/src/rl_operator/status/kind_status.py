"""The status of an RLRuntime, and of an RLEnvironment: what its code defines, read without running it.

The conditions of both: four cases, one table (kstatus: Ready, Reconciling, Stalled).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal

from rl_operator.api.catalog import Catalog, CatalogEnvironment, EnvironmentField, listed_name
from rl_operator.api.environment import Environment, EnvironmentStatus
from rl_operator.api.names import OPENENV_ENVIRONMENT, REQUIREMENTS_FILE
from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import FieldsReference, RuntimeEnvironment, RuntimeStatus
from rl_operator.api.spec_parts.openenv import NEEDS_CLUSTER
from rl_operator.api.status_fields import Condition
from rl_operator.documents.parse import nearest
from rl_operator.documents.source_files import chosen_entry, source_hash
from rl_operator.status.observed.observation import format_time
from rl_operator.status.text.phase_table import conditions_of
from rl_operator.status.text.sentences import cut, joined


class Readiness(Enum):
    READY = "runs can use it"
    RECONCILING = "it is being read, or will be again, without further action"
    FAILING = "it could not be read, and is tried again"
    STALLED = "someone must fix it"


CONDITIONS: Final[Mapping[Readiness, Mapping[str, Literal["True", "False"]]]] = {
    Readiness.READY: {"Ready": "True"},
    Readiness.RECONCILING: {"Reconciling": "True"},
    Readiness.FAILING: {"Ready": "False", "Reconciling": "True"},
    Readiness.STALLED: {"Ready": "False", "Stalled": "True"},
}


@dataclass(frozen=True, slots=True)
class Verdict:
    readiness: Readiness
    reason: str
    message: str


def _conditions(verdict: Verdict, before: Sequence[Condition], generation: int, now: datetime) -> tuple[Condition, ...]:
    values, moment = CONDITIONS[verdict.readiness], format_time(now)
    return conditions_of(values, before, verdict.reason, verdict.message, generation=generation, now=moment)


def reasons_of(conditions: Sequence[Condition]) -> frozenset[tuple[str, str]]:
    """The content of the Event when it changes."""
    return frozenset((condition.type, condition.reason) for condition in conditions)


MAX_SOURCE_BYTES: Final = 900_000
"""The run's frozen copy must fit into a ConfigMap, too."""

REQUIREMENTS_WARNING: Final = (
    f"Its {REQUIREMENTS_FILE} is not installed on a cluster: what it needs has to be in the runtime's image, or in an "
    "image of its own (spec.image)."
)

MAX_FIELDS_BYTES: Final = 80_000
MAX_TEXT: Final = 2_000


@dataclass(frozen=True, slots=True)
class EnvironmentReading:
    """What was read. `content`: a hash of it; None: nothing could be read."""

    verdict: Verdict
    content: str | None = None
    found: CatalogEnvironment | None = None
    entry: str | None = None
    image_id: str | None = None


def environment_status(environment: Environment, look: EnvironmentReading, now: datetime) -> EnvironmentStatus:
    generation, found = environment.metadata.generation, look.found
    fields, left_out = fitting_fields(found.fields) if found else ((), "")
    verdict = Verdict(look.verdict.readiness, look.verdict.reason, cut(look.verdict.message + left_out, MAX_TEXT))
    return EnvironmentStatus(
        observed_generation=generation,
        conditions=_conditions(verdict, environment.status.conditions, generation, now),
        source_hash=look.content,
        image_id=look.image_id,
        entry=look.entry,
        class_name=cut(found.class_name, MAX_TEXT) if found else None,
        description=cut(found.description, MAX_TEXT) if found else None,
        draws_items=(found is not None and found.draws_items) or None,
        fields=fields,
    )


def still_true(environment: Environment, content: str) -> bool:
    """Whether the status already describes that content, for the current spec."""
    status = environment.status
    return assessed(environment, content) and status.observed_generation == environment.metadata.generation


def assessed(environment: Environment, content: str) -> bool:
    """Whether the status describes that content, perhaps for an earlier spec."""
    return environment.status.condition("Ready") is not None and environment.status.source_hash == content


def carried_over(environment: Environment) -> EnvironmentStatus:
    """The status for a spec that changed only in fields that do not affect it."""
    status, generation = environment.status, environment.metadata.generation
    conditions = tuple(c.with_changes(observed_generation=generation) for c in status.conditions)
    return status.with_changes(observed_generation=generation, conditions=conditions)


def look_at_resources(faults: Sequence[Refusal]) -> EnvironmentReading | None:
    """Settings that no pod could be created with, whatever the code is; None if there is no fault."""
    return EnvironmentReading(_stalled("InvalidResources", faults[0].sentence)) if faults else None


# --- an OpenEnv server -------------------------------------------------------------------------------------------
def look_at_server(
    environment: Environment, faults: Sequence[Refusal], known: CatalogEnvironment | None
) -> EnvironmentReading:
    """Nothing is read: our own environment plays against the server. `known`: that environment; None: it is missing."""
    server = environment.spec.openenv
    assert server is not None, "asked of OpenEnv servers only"
    if faults:
        needs = "NeedsCluster" if faults[0].hint == NEEDS_CLUSTER else "InvalidServer"
        return EnvironmentReading(_stalled(needs, faults[0].sentence))
    if known is None:
        sentence = f"This release has no environment {OPENENV_ENVIRONMENT!r}: install one that plays OpenEnv servers."
        return EnvironmentReading(_stalled("NoEnvironment", sentence))
    where = server.url or server.image or server.command[0]
    sentence = f"Sessions of the OpenEnv server {where}, {len(known.fields)} fields."
    return EnvironmentReading(Verdict(Readiness.READY, "ServerNamed", sentence), None, known, OPENENV_ENVIRONMENT)


# --- a user's ConfigMap ------------------------------------------------------------------------------------------
def files_in(where: str, config_map: Mapping[str, Any] | None) -> Mapping[str, str] | EnvironmentReading:
    """The files of a ConfigMap, or what is wrong before any of them is read. `where` names it."""
    if config_map is None:
        sentence = f"{where} does not exist: create it with the environment's Python files."
        return EnvironmentReading(_stalled("SourceNotFound", sentence))
    files: Mapping[str, str] = config_map.get("data", {})
    binary = sorted(config_map.get("binaryData", {}))
    if binary:
        sentence = f"{where} holds binary data ({_names(binary)}): only text files can be used."
        return EnvironmentReading(_stalled("SourceNotText", sentence))
    size = sum(len(name.encode()) + len(text.encode()) for name, text in files.items())
    if size > MAX_SOURCE_BYTES:
        sentence = f"{where} holds {size / 1000:.0f} kB: at most {MAX_SOURCE_BYTES / 1000:.0f} kB can be used."
        return EnvironmentReading(_stalled("SourceTooLarge", sentence))
    return files


def look_at_source(where: str, files: Mapping[str, str], named: str | None, catalog: Catalog) -> EnvironmentReading:
    """What the discovery of files means. `named`: the entry that the spec names, if any."""
    content, problem = source_hash(files), catalog.problem
    if problem is not None:
        sentence = problem.sentence if problem.file else f"{where}: {problem.message}"
        return EnvironmentReading(_stalled(problem.reason, sentence), content)
    (found,) = catalog.environments  # an entry file defines one, or there is a problem
    return EnvironmentReading(_ready(found), content, found, chosen_entry(files, named))


def warned_of_requirements(look: EnvironmentReading, files: Collection[str]) -> EnvironmentReading:
    """A cluster installs nothing for an environment that can be read: its image has what it needs, or it fails."""
    if REQUIREMENTS_FILE not in files or look.verdict.readiness is not Readiness.READY:
        return look
    verdict = replace(look.verdict, message=f"{look.verdict.message} {REQUIREMENTS_WARNING}")
    return replace(look, verdict=verdict)


# --- an image ---------------------------------------------------------------------------------------------------
def look_at_image(catalog: Catalog, entry: str, content: str, image_id: str | None) -> EnvironmentReading:
    """The environment that the entry means among those of the image. A path was read as an entry file."""
    if catalog.problem is not None:
        verdict = _stalled(catalog.problem.reason, catalog.problem.sentence)
        return EnvironmentReading(verdict, content, entry=entry, image_id=image_id)
    found = next(iter(catalog.environments), None) if entry.startswith("/") else catalog.named(listed_name(entry))
    if found is None:
        existing = _names([each.name for each in catalog.outline])
        hint = nearest(entry, catalog.names) or "."
        sentence = f"spec.image.entry is {entry!r}: the image has no such environment ({existing}){hint}"
        return EnvironmentReading(_stalled("NoEnvironment", sentence), content, entry=entry, image_id=image_id)
    return EnvironmentReading(_ready(found), content, found, entry, image_id)


def fitting_fields(fields: tuple[EnvironmentField, ...]) -> tuple[tuple[EnvironmentField, ...], str]:
    """As many fields as a status has room for, and a sentence on what was left out."""
    unique = tuple({field.name: field for field in fields}.values())
    if _size(unique) <= MAX_FIELDS_BYTES:
        return unique, ""
    plain = tuple(field.with_changes(description="") for field in unique)
    if _size(plain) <= MAX_FIELDS_BYTES:
        return plain, " The fields' descriptions are left out: they are too long."
    return (), f" Its {len(unique)} fields are too much to be listed: config is checked by the environment itself."


def _size(fields: tuple[EnvironmentField, ...]) -> int:
    return len(json.dumps([field.to_wire() for field in fields]))


def _ready(found: CatalogEnvironment) -> Verdict:
    return Verdict(Readiness.READY, "EnvironmentFound", f"Class {found.class_name}, {len(found.fields)} fields.")


def _stalled(reason: str, message: str) -> Verdict:
    return Verdict(Readiness.STALLED, reason, message)


def _names(names: Collection[str]) -> str:
    """`it has: a.py, b.py`, a few of them."""
    shown = sorted(names)[:10]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"it has: {', '.join(shown)}{more}" if shown else "it is empty"


MAX_DESCRIPTION: Final = 120
MAX_WARNINGS: Final = 10

EPHEMERAL_WARNING: Final = (
    "Warning: the backend's checkpoints and weights are deleted with its pod (backend.ephemeral): a run that is to "
    "continue after that ends as CheckpointLost."
)


def faults_verdict(faults: Sequence[Refusal]) -> Verdict:
    """Invalid settings in the spec: all of them are named."""
    return Verdict(Readiness.STALLED, "RuntimeInvalid", "\n".join(fault.sentence for fault in faults))


def ready_verdict(image: str, catalog: Catalog, *, read: bool, ephemeral: bool) -> Verdict:
    """`read`: the catalog was read from the image, which has been pulled, then; else it is the one that ships with us.
    `ephemeral`: the backend does not keep checkpoints (`spec.backend.ephemeral`).
    """
    count = len(catalog.nameable)
    found = f"{count} environment{'' if count == 1 else 's'}"
    if read:
        found = f"{found} in image {image}."
    else:
        found = f"{found}, by the operator's own catalog; a run shows whether image {image} can be pulled."
    return Verdict(Readiness.READY, "CatalogRead", joined(found, EPHEMERAL_WARNING if ephemeral else ""))


def runtime_status(
    previous: RuntimeStatus,
    verdict: Verdict,
    *,
    generation: int,
    now: datetime,
    catalog: Catalog | None = None,
    image_id: str | None = None,
    fields_ref: FieldsReference | None = None,
) -> RuntimeStatus:
    """`catalog` None: nothing is known about the spec's image."""
    environments = catalog.outline if catalog else ()
    return RuntimeStatus(
        observed_generation=generation,
        conditions=_conditions(verdict, previous.conditions, generation, now),
        environments=tuple(
            RuntimeEnvironment(name=each.name, description=cut(each.description, MAX_DESCRIPTION))
            for each in environments
        ),
        fields_ref=fields_ref,
        image_id=image_id,
        warnings=_few(catalog.warnings) if catalog else (),
    )


def _few(warnings: Sequence[str]) -> tuple[str, ...]:
    if len(warnings) <= MAX_WARNINGS:
        return tuple(warnings)
    kept = MAX_WARNINGS - 1
    return (*warnings[:kept], f"and {len(warnings) - kept} more: the catalog's ConfigMap has all of them")
