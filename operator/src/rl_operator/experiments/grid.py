"""The grid of a sweep: from `--set FIELD=VALUE,VALUE` to the values and the name of each run. Pure."""

import copy
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from rl_operator.api.names import (
    EXPERIMENT_LABEL,
    MAX_RUN_NAME_LENGTH,
    RUN_NAME_PATTERN,
    STARTED_AS_ANNOTATION,
    SWEPT_ANNOTATION,
)
from rl_operator.api.refusal import redacted
from rl_operator.api.settings.fields import TRAINER_FIELDS
from rl_operator.api.training_run import RunSpec, TrainingRun
from rl_operator.api.value_text import same_value, text_of
from rl_operator.documents.parse import nearest, parse_run
from rl_operator.documents.yaml_text import YamlError, json_value, read_yaml
from rl_operator.operator_errors import RefusedError

MOST_RUNS: Final = 64
"""Of a grid, unless the caller raises it: a slip of the hand is not to cost a thousand runs."""

EXAMPLE: Final = "trainer.learning_rate=1e-4,3e-4"
SECTIONS: Final = ("config", "trainer")
"""Of a spec: their fields are the environment's and the trainer's, and are swept one by one."""

SWEPT_FIELD: Final = r"^[A-Za-z0-9_./-]{1,200}$"
"""A path below `spec`, also that of an environment's own field."""

NOT_INITIALS: Final[Mapping[str, str]] = {"lora_rank": "rank"}
"""In names of runs: `lr` is the learning rate."""

Point = Mapping[str, Any]
"""A value for each swept field, by its path below `spec`: `{"trainer.learning_rate": 0.0001}`."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A field of the spec and the values that it takes, each once."""

    field: str
    values: tuple[Any, ...]


def parse_axis(text: str) -> Axis:
    """`trainer.learning_rate=1e-4,3e-4`: the values are a YAML list without its brackets, read as in a run's file.

    Raises RefusedError.
    """
    name, equals, listed = text.partition("=")
    field = name.strip().removeprefix("spec.")
    if not (field and equals and listed.strip()):
        raise RefusedError(f"--set is {text!r}; it must be FIELD=VALUE or FIELD=VALUE,VALUE, like {EXAMPLE}")
    _require_field(field)
    values = _values(field, listed)
    for number, value in enumerate(values):
        if any(same_value(value, other) for other in values[:number]):
            raise RefusedError(f"--set {field} has {text_of(redacted(value, field))} twice: give each value once")
    return Axis(field, tuple(values))


def _require_field(field: str) -> None:
    """Refuses a field that the spec does not have. What is in `config` and `trainer` is looked at by the check, which
    knows the environment.
    """
    names = {info.alias or name for name, info in RunSpec.model_fields.items()} - {"suspend"}
    section, _, inner = field.partition(".")
    if section in SECTIONS and not inner:
        raise RefusedError(f"--set {field}: it must name a field of it, like {EXAMPLE}")
    if section not in names or "" in field.split(".") or not re.fullmatch(SWEPT_FIELD, field):
        known = sorted({*names.difference(SECTIONS), *(f"trainer.{name}" for name in TRAINER_FIELDS)})
        ways = f"{', '.join(f'{each}.FIELD' for each in SECTIONS)}, or one of {', '.join(sorted(names - {*SECTIONS}))}"
        raise RefusedError(f"--set {field}: a run has no such field{nearest(field, known) or f'; it must be {ways}'}")


def _values(field: str, listed: str) -> list[object]:
    try:
        documents = read_yaml(f"[{listed}]")
    except YamlError as error:
        raise RefusedError(f"--set {field}={listed}: the values are not readable YAML: {error}") from None
    if len(documents) != 1 or not isinstance(documents[0], list):
        raise RefusedError(f"--set {field}={listed}: the values must be a YAML list without its brackets")
    return [json_value(value) for value in documents[0]]


def points_of(axes: Sequence[Axis], most: int = MOST_RUNS) -> tuple[Point, ...]:
    """Every combination; the last axis varies fastest. Raises RefusedError."""
    if not axes:
        raise RefusedError(f"a sweep needs --set FIELD=VALUE,VALUE at least once, like --set {EXAMPLE}")
    fields = [axis.field for axis in axes]
    for field in fields:
        inside = [other for other in fields if other.startswith(f"{field}.")]
        if fields.count(field) > 1 or inside:
            raise RefusedError(f"--set {inside[0] if inside else field}: it is given twice; name all values at once")
    size = math.prod(len(axis.values) for axis in axes)
    if size > most:
        sizes = " × ".join(str(len(axis.values)) for axis in axes)
        raise RefusedError(f"the grid has {size} runs ({sizes}), and {most} are allowed: name fewer values, or --most")
    return tuple(dict(zip(fields, values, strict=True)) for values in itertools.product(*(a.values for a in axes)))


def run_names(name: str, points: Sequence[Point]) -> tuple[str, ...]:
    """`NAME-lr1e-4-seed0` if that is short, valid and different for each run, else `NAME-1`, `NAME-2` …

    Raises RefusedError if even that is not a run's name.
    """
    several = [field for field in points[0] if any(not same_value(point[field], points[0][field]) for point in points)]
    suffixes = ["-".join(_word(field, point[field]) for field in several) for point in points]
    readable = tuple(f"{name}-{suffix}" for suffix in suffixes)
    if several and max(Counter(readable).values()) == 1 and all(map(_is_name, readable)):
        return readable
    numbered = tuple(f"{name}-{number}" for number in range(1, len(points) + 1))
    if not _is_name(numbered[-1]):
        allowed = f"at most {MAX_RUN_NAME_LENGTH} of a-z, 0-9 and '-', a letter first"
        raise RefusedError(f"{numbered[-1]!r} is not a name for a run ({allowed}): choose another one with --name")
    return numbered


def _is_name(name: str) -> bool:
    return len(name) <= MAX_RUN_NAME_LENGTH and re.fullmatch(RUN_NAME_PATTERN, name) is not None


def _word(field: str, value: object) -> str:
    """`lr1e-4`, `seed0`, `loss-ppo`; `?`, which is in no name, for values that are not a short word."""
    last = field.rpartition(".")[2].lower()
    short = NOT_INITIALS.get(last) or ("".join(part[:1] for part in last.split("_")) if "_" in last else last)
    match value:
        case bool() | None:
            return f"{short}-{json.dumps(value)}"
        case int() | float():
            return f"{short}{_number(value)}"
        case str():
            return f"{short}-{re.sub('[^a-z0-9]+', '-', value.lower()).strip('-')}"
    return "?"


def _number(value: float) -> str:
    """`8`, `1e-4`, `0p9`: a name has no dots."""
    exact = Decimal(repr(value)).normalize()
    text = f"{exact:f}" if value == 0 or -3 < exact.adjusted() < 6 else f"{exact:E}"
    return text.lower().replace(".", "p").replace("+", "")


def runs_of(run: TrainingRun, experiment: str, points: Sequence[Point]) -> tuple[TrainingRun, ...]:
    """The run once for each point, with the point's values, a name, the experiment's label and the swept values.

    Raises RefusedError, and DocumentError for a value that does not fit the run's kind.
    """
    names = run_names(experiment, points)
    return tuple(_run_at(run, experiment, name, point) for name, point in zip(names, points, strict=True))


def _run_at(run: TrainingRun, experiment: str, name: str, point: Point) -> TrainingRun:
    document = run.with_changes(metadata=run.metadata.with_changes(name=name)).to_wire()
    kept = {name: text for name, text in run.metadata.annotations.items() if name != STARTED_AS_ANNOTATION}
    swept = json.dumps(point, separators=(",", ":"))
    metadata = {
        **document["metadata"],
        "labels": run.metadata.labels | {EXPERIMENT_LABEL: experiment},
        "annotations": kept | {SWEPT_ANNOTATION: swept},
    }
    return parse_run({**document, "metadata": metadata, "spec": with_values(document["spec"], point)})


def with_values(spec: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """The spec, in its wire form, with these values; a value that is a mapping replaces the old one."""
    changed = copy.deepcopy(dict(spec))
    for field, value in point.items():
        *way, last = field.split(".")
        section = changed
        for step in way:
            if not isinstance(section.get(step), dict):
                section[step] = {}
            section = section[step]
        section[last] = value
    return changed


def swept_values(annotations: Mapping[str, str]) -> dict[str, object]:
    """What a run has from its grid; empty if it is of none. Keys that are not a field's path are left out: anybody
    who may write the run may write the annotation.
    """
    try:
        found = json.loads(annotations.get(SWEPT_ANNOTATION, "{}"))
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {field: value for field, value in found.items() if re.fullmatch(SWEPT_FIELD, field)}


def belongs_to_trainer(fields: Iterable[str]) -> str:
    """A hint for `config.learning_rate`, which is the trainer's; empty if there is no such mistake."""
    meant = [each for field in fields if (each := field.removeprefix("spec.config.")) in TRAINER_FIELDS]
    return f"; {meant[0]} is the trainer's: --set trainer.{meant[0]}=…" if meant else ""
