"""From text to models: every fault of a file becomes a refusal that names the field, the value and what is allowed."""

import difflib
import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rl_operator.api.environment import Environment
from rl_operator.api.hints import MUST_BE
from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.model import ApiModel, ObjectMeta
from rl_operator.api.names import (
    API_VERSION,
    ENVIRONMENT_KIND,
    GROUP,
    MAX_RUN_NAME_LENGTH,
    QUEUE_NAME_LABEL,
    RUN_KIND,
    RUN_NAME_PATTERN,
    RUNTIME_KIND,
)
from rl_operator.api.refusal import PLAIN_NAME, Refusal, field_path, first_refusals, redacted
from rl_operator.api.runtime import Runtime
from rl_operator.api.settings.size_limits import MAX_LABELS, section_problem
from rl_operator.api.training_run import TrainingRun
from rl_operator.api.value_text import text_of
from rl_operator.documents.fault_words import allowed_instead
from rl_operator.documents.yaml_text import YamlError, json_value, read_yaml
from rl_operator.operator_errors import OperatorError

Model = TypeVar("Model", bound=ApiModel)


class DocumentError(OperatorError):
    """A document that is not a valid object of ours. `refusals` says why, one entry per fault; never empty."""

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__("\n".join(refusal.sentence for refusal in refusals))
        self.refusals = refusals

    @property
    def refusal(self) -> Refusal:
        """The first fault."""
        return self.refusals[0]


def load_documents(text: str) -> list[Manifest]:
    """All objects of a YAML or JSON text; a `List` is unpacked, empty documents are skipped. Raises DocumentError."""
    try:
        documents = read_yaml(text)
    except YamlError as error:
        raise DocumentError(_invalid("", None, "YAML or JSON", f"this is not readable YAML: {error}")) from None
    objects = [item for document in documents for item in _items_of(document)]
    for document in objects:
        if not isinstance(document, dict):
            hint = "this is not a Kubernetes object: it must be a mapping with apiVersion, kind, metadata and spec"
            raise DocumentError(_invalid("", document, "a mapping", hint))
    return objects


def _items_of(document: object) -> list[Any]:
    """The objects of a `List`; for any other document, itself."""
    if not isinstance(document, dict):
        return [document]
    items = document.get("items")
    return items if str(document.get("kind", "")).endswith("List") and isinstance(items, list) else [document]


def run_among(documents: Sequence[Mapping[str, object]]) -> TrainingRun:
    """The only run among documents; other kinds are ignored. Raises DocumentError unless there is exactly one."""
    runs = [document for document in documents if document.get("kind") == RUN_KIND]
    if len(runs) == 1:
        return parse_run(runs[0])
    kinds = sorted({_kind_of(document) for document in documents})
    found = f"it holds {len(runs)} of them" if runs else f"it holds {', '.join(kinds) if kinds else 'nothing'}"
    raise DocumentError(
        _invalid(
            "kind", kinds or None, RUN_KIND, f"the file must hold exactly one {RUN_KIND} ({API_VERSION}), but {found}"
        )
    )


def _kind_of(document: Mapping[str, object]) -> str:
    kind = redacted(document.get("kind"))
    return kind if isinstance(kind, str) and re.fullmatch(PLAIN_NAME, kind) else text_of(kind)


def parse_run(document: Mapping[str, object]) -> TrainingRun:
    """Check and type a run. Raises DocumentError with the faults found."""
    _require_sizes(RUN_KIND, document)
    return _run_of(document)


def _run_of(document: Mapping[str, object], *, stored: bool = False) -> TrainingRun:
    run = _parse(TrainingRun, RUN_KIND, document, stored=stored)
    name = run.metadata.name
    if len(name) > MAX_RUN_NAME_LENGTH or not re.fullmatch(RUN_NAME_PATTERN, name):
        allowed = f"at most {MAX_RUN_NAME_LENGTH} of a-z, 0-9 and '-', a letter first, no '-' at the end"
        hint = f"the name (here {len(name)} characters) becomes part of pod names: use {allowed}"
        raise DocumentError(
            Refusal(code="InvalidName", field="metadata.name", given=redacted(name), allowed=allowed, hint=hint)
        )
    return run


def parse_stored_run(document: Mapping[str, Any]) -> TrainingRun:
    """A run that the API server accepted. What of it is larger than anything that is ever read is left empty, and
    `faults` says so: such a run must be told. Raises DocumentError for everything else.
    """
    metadata, crowded = _readable_metadata(document["metadata"])
    too_large = _too_large(RUN_KIND, document)
    spec = {**document["spec"], **{section: {} for (_, section), _ in too_large}}
    run = _run_of({**document, "metadata": metadata, "spec": spec}, stored=True)
    return run.with_faults((*crowded, *(refusal for _, refusal in too_large)))


_CROWDED: Final = f"it has %d of them, and at most {MAX_LABELS} are allowed: remove some"


def _readable_metadata(metadata: Mapping[str, Any]) -> tuple[dict[str, object], list[Refusal]]:
    """What is read of an object's metadata: a fraction of what the API server stores. Of too many labels or
    annotations only our own are read.
    """
    known = {field.alias or name for name, field in ObjectMeta.model_fields.items()}
    read = {name: value for name, value in metadata.items() if name in known and name != "finalizers"}
    faults = []
    for field in ("labels", "annotations"):
        given = metadata.get(field) or {}
        if len(given) > MAX_LABELS:
            read[field] = {name: value for name, value in given.items() if name.startswith(_OWN_NAMES)}
            hint = _CROWDED % len(given)
            faults.append(Refusal(code="OutOfBounds", field=f"metadata.{field}", allowed=MAX_LABELS, hint=hint))
    return read, faults


_OWN_NAMES: Final = (f"{GROUP}/", QUEUE_NAME_LABEL)

_SECTIONS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    RUN_KIND: (("spec", "config"), ("spec", "trainer")),
    RUNTIME_KIND: tuple(
        ("spec", part, section) for part in ("locked", "defaults") for section in ("env", "openai", "trainer")
    ),
}
"""The free-form parts of each kind: the API server does not look far into them."""


def _too_large(kind: str, document: Mapping[str, object]) -> list[tuple[tuple[str, ...], Refusal]]:
    """The paths of the free-form parts that are too large to be looked at, and what is too large in them."""
    found = []
    for path in _SECTIONS.get(kind, ()):
        section = _part(document, path)
        problem = section_problem(section) if isinstance(section, Mapping) else None
        if problem:
            name, hint = problem
            field = field_path((*path, name) if name is not None else path)
            found.append((path, Refusal(code="OutOfBounds", field=field, hint=hint)))
    return found


def _require_sizes(kind: str, document: Mapping[str, object]) -> None:
    if too_large := _too_large(kind, document):
        raise DocumentError(*(refusal for _, refusal in too_large))


def _part(document: object, path: Iterable[str]) -> object:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def parse_runtime(document: Mapping[str, object]) -> Runtime:
    """Check and type a runtime. Raises DocumentError with the faults found."""
    _require_sizes(RUNTIME_KIND, document)
    return _parse(Runtime, RUNTIME_KIND, document)


def parse_environment(document: Mapping[str, object]) -> Environment:
    """Check and type an RLEnvironment. Raises DocumentError with the faults found."""
    return _parse(Environment, ENVIRONMENT_KIND, document)


def _parse(model: type[Model], kind: str, document: Mapping[str, object], *, stored: bool = False) -> Model:
    """`stored`: it is plain JSON, as the API server writes it."""
    for field, expected in (("kind", kind), ("apiVersion", API_VERSION)):
        given = document.get(field)
        if given != expected:
            raise DocumentError(_invalid(field, given, expected, f"{field} must be {expected}"))
    try:
        # By way of JSON: strict types, but a JSON array is a tuple. Keys, and so faults, are in the API server's order.
        return model.model_validate_json(_json_text(document if stored else json_value(dict(document))), strict=True)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise DocumentError(*first_refusals(_explain(model, detail) for detail in faults)) from None
    except ValueError as error:
        raise DocumentError(_invalid("", None, "JSON values", str(error))) from None


def _json_text(document: Mapping[str, object]) -> str | bytes:
    try:
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # nested deeper than 254, or an integer of more than 64 bits
        return json.dumps(document, sort_keys=True)


def _explain(model: type[BaseModel], detail: ErrorDetails) -> Refusal:
    location = detail["loc"]
    field = field_path(location)
    match detail["type"]:
        case "extra_forbidden":
            known = _fields_at(model, location[:-1])
            hint = (
                _range_of_nested(location, detail["input"])
                or f"there is no such field{nearest(str(location[-1]), known)}"
            )
            given = redacted(detail["input"], str(location[-1]))
            return Refusal(code="UnknownField", field=field, given=given, allowed=known, hint=hint)
        case "missing":
            return Refusal(code="MissingField", field=field, hint="the field is required")
        case _:
            code, allowed = allowed_instead(detail)
            must = MUST_BE % allowed if allowed else re.sub(r"^\w+ should", "it must", detail["msg"])
            hint = _budget_in_full(location, detail["input"]) or must
            given = redacted(detail["input"], str(location[-1]) if location else "")
            return Refusal(code=code, field=field, given=given, allowed=allowed, hint=hint)


def _range_of_nested(location: Sequence[str | int], given: object) -> str:
    """What to write for a bound that is nested as the field is in a run's file."""
    match location:
        case ("spec", "bounds", _, outer, inner) if isinstance(given, Mapping):
            name = text_of(redacted(f"{outer}.{inner}"))
            return f"a range has min and max; that of a field inside of a mapping is named with a dot: {name}"
    return ""


def _budget_in_full(location: Sequence[str | int], given: object) -> str:
    """What to write for a budget that is only a number."""
    if tuple(location) == ("spec", "budget") and isinstance(given, int | float) and not isinstance(given, bool):
        return f"it has an amount and a currency: write {{amount: {text_of(given)}, currency: USD}}"
    return ""


MAX_COMPARED: Final = 500
"""Names, by the letters in them; a few microseconds each."""
MAX_ALIGNED: Final = 20
"""Of those, letter by letter: each may take half a millisecond, and a check may look for MAX_REFUSALS names."""
_COMPARED_LENGTH: Final = 40
"""Of names; the letters of as many more only decide between names that begin alike."""


def close_matches(name: str, known: Iterable[str], *, most: int, cutoff: float = 0.6) -> list[str]:
    """The most alike of the names, the nearest first: at most MAX_ALIGNED, and of so many known ones only."""
    begin, rest = slice(_COMPARED_LENGTH), slice(_COMPARED_LENGTH, 2 * _COMPARED_LENGTH)
    begins, rests = (difflib.SequenceMatcher(b=name[part]) for part in (begin, rest))

    def same_letters(other: str) -> float:
        begins.set_seq1(other[begin])
        return begins.quick_ratio()

    def likeness(other: str) -> tuple[float, float]:
        begins.set_seq1(other[begin])
        rests.set_seq1(other[rest])
        return begins.ratio(), rests.quick_ratio()

    likely = nlargest(MAX_ALIGNED, islice(known, MAX_COMPARED), key=same_letters)
    scored = ((likeness(each), each) for each in likely)
    return [each for _, each in nlargest(most, (found for found in scored if found[0][0] >= cutoff))]


RENAMED: Final[Mapping[str, str]] = {
    "tinker": "trainer",
    "statePath": "checkpoint",
    "kl_base_coef": "kl_penalty_coef",
    "stop_at": "early_stopping.stop_at",
    "patience": "early_stopping.patience",
}
"""The old names of fields: answered with the new one, and not accepted."""


def renamed(name: str, known: Container[str]) -> str | None:
    """What a field is called today, if one or more parts of its name or path are old and the new one is known."""
    today = ".".join(RENAMED.get(part, part) for part in name.split("."))
    return today if today != name and today in known else None


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an old name, `; it is called 'trainer'`; for a misspelled one,
    `; did you mean 'group_size', 'batch_size' or 'eval_size'?`; or nothing.
    """
    names = list(islice(known, MAX_COMPARED))
    if today := renamed(name, names):
        return f"; it is called {today!r}"
    matches = [repr(match) for match in dict.fromkeys([*abbreviated(name, names), *_alike(name, names)])][:3]
    if not matches:
        return ""
    *others, last = matches
    return f"; did you mean {', '.join(others)} or {last}?" if others else f"; did you mean {last}?"


def _alike(name: str, names: Sequence[str]) -> list[str]:
    """For a name with a part before the last `.` or `/`, only the last part is compared: else all names that begin like
    it would be near. A last part that is the same is near, wherever it is.
    """
    last = _last_part(name)
    begin = name.removesuffix(last)
    siblings = {each.removeprefix(begin): each for each in names if begin and each.startswith(begin)}
    near = [siblings[each] for each in close_matches(last, siblings, most=3)]
    same = [each for each in names if _last_part(each) == last]
    return [*near, *same] if siblings else [*same, *close_matches(name, names, most=3)]


def _last_part(name: str) -> str:
    return re.split("[./]", name)[-1]


def abbreviated(name: str, known: Iterable[str]) -> list[str]:
    """The names whose words begin with the letters of `name`: learning_rate for lr. It looks like none of them."""
    letters = name.lower()
    initials = {each: "".join(word[:1] for word in each.split("_")) for each in known}
    return sorted(each for each, found in initials.items() if len(letters) > 1 and found == letters)


def _fields_at(model: type[BaseModel], location: Iterable[str | int]) -> list[str]:
    """The wire names of the model's fields at a path below `model`."""
    for part in location:
        if isinstance(part, int):
            continue
        field = next((f for name, f in model.model_fields.items() if part in (f.alias, name)), None)
        model = (_model_in(field.annotation) if field is not None else None) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model inside `Model`, `Model | None`, `tuple[Model, ...]` or `dict[str, Model]`; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next((model for model in inner if model is not None), None)


def _invalid(field: str, given: object, allowed: object, hint: str) -> Refusal:
    return Refusal(code="InvalidDocument", field=field, given=redacted(given), allowed=allowed, hint=hint)
