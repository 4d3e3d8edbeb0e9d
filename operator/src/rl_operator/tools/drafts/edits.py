"""From an agent's requested changes to a new spec. Pure: nothing is written, nothing is checked."""

import copy
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rl_operator.api.hints import KEY_IN_RUN
from rl_operator.api.refusal import looks_like_a_key, redacted
from rl_operator.api.sections import same_value
from rl_operator.api.settings.fields import flattened, outer_names, steps_of
from rl_operator.api.training_run import RunSpec
from rl_operator.api.value_text import text_of
from rl_operator.check.types import type_problem
from rl_operator.documents.yaml_text import json_value
from rl_operator.tools.agent_tool import ToolRefusedError
from rl_operator.tools.drafts.field_names import FREE_FORM, RunField, RunFields

_PYTHON_WORDS: Final[Mapping[str, str]] = {"True": "true", "False": "false", "None": "null"}

_NOTHING: Final = object()

Spec = Mapping[str, Any]
"""A run's spec, in its wire form."""


@dataclass(frozen=True)
class Edit:
    """A field and its new value; None: the run no longer sets it. `note`: how the input was interpreted."""

    field: RunField
    value: Any
    note: str = ""


@dataclass(frozen=True)
class Change:
    """The effect of an edit. `before` and `after` are in force (the default's if the run sets nothing), in the form
    that an answer may show: two that look alike may differ.
    """

    name: str
    path: str
    before: Any
    after: Any
    stays: bool
    unset: bool
    note: str = ""

    @property
    def sentence(self) -> str:
        was = f"it was {text_of(self.before)}"
        if self.stays:
            return f"{self.name} stays {text_of(self.after)}{self.note}"
        if self.unset:
            return f"{self.name} is unset, so {text_of(self.after)} holds ({was})"
        return f"{self.name} is {text_of(self.after)} now ({was}){self.note}"

    def to_wire(self) -> dict[str, Any]:
        return {"field": self.name, "path": self.path, "from": self.before, "to": self.after}


def edits_of(fields: RunFields, values: Mapping[str, object]) -> tuple[tuple[Edit, ...], tuple[ToolRefusedError, ...]]:
    """And what is wrong with the others: an unknown name, a second name of one field, what no run can hold."""
    edits: dict[tuple[str, ...], tuple[str, Edit]] = {}
    faults = list[ToolRefusedError]()
    for name, value in values.items():
        try:
            edit = _edit(fields, name, value)
        except ToolRefusedError as error:
            faults.append(error)
            continue
        place = edit.field.place
        if place in edits:
            faults.append(
                ToolRefusedError(f"{edits[place][0]} and {name} are one field, {edit.field.path}: give it once")
            )
        else:
            edits[place] = name, edit
    return tuple(edit for _, edit in edits.values()), tuple(faults)


def _edit(fields: RunFields, name: str, value: object) -> Edit:
    field = fields.named(name)
    _refuse_foreign(field, value)
    return Edit(field, *_taken(value, field))


def with_edits(spec: Spec, edits: Iterable[Edit]) -> dict[str, Any]:
    """A spec in its wire form, with these values; a value replaces the old one, mappings too."""
    edited = copy.deepcopy(dict(spec))
    for edit in edits:
        *way, last = edit.field.place
        section = edited
        for step in way:
            if not isinstance(section.get(step), dict):  # it is missing, or was refused
                section[step] = {}
            section = section[step]
        if edit.value is None:
            section.pop(last, None)
        else:
            section[last] = edit.value
    return edited


def value_in(spec: Spec, field: RunField) -> Any:
    """The effective value, in the form that an answer may show."""
    return redacted(_in_force(spec, field), field.name)


def _in_force(spec: Spec, field: RunField) -> Any:
    """A lock holds whatever the run sets."""
    given = _NOTHING if field.locked else _given(spec, field.place)
    return field.default if given is _NOTHING else given


def changes_of(fields: RunFields, edits: Iterable[Edit], before: Spec, after: Spec) -> tuple[Change, ...]:
    return tuple(
        Change(
            name=fields.called(edit.field),
            path=edit.field.path,
            before=value_in(before, edit.field),
            after=value_in(after, edit.field),
            stays=same_value(_in_force(before, edit.field), _in_force(after, edit.field)),
            unset=edit.value is None,
            note=edit.note,
        )
        for edit in edits
    )


def settings_of(fields: RunFields, spec: Spec) -> dict[str, Any]:
    """What the run sets, by the names that agents use; a key that was entered there is not shown."""
    plain = RunSpec(environment=spec["environment"]).to_wire()
    known = {field.place: fields.called(field) for field in fields.all}
    own = (place for place in known if place[0] not in FREE_FORM)
    changed = (place for place in own if _given(spec, place) not in (_NOTHING, _given(plain, place)))
    places = [*_free(known, spec), *changed]
    return {known.get(place, ".".join(place)): redacted(_given(spec, place), place[-1]) for place in places}


def _free(known: Collection[tuple[str, ...]], spec: Spec) -> Iterator[tuple[str, ...]]:
    """The places of what the run sets for the environment and the trainer."""
    for section in FREE_FORM:
        names = [".".join(place[1:]) for place in known if place[0] == section]
        outer = outer_names(names)
        yield from ((section, *steps_of(name, outer)) for name in flattened(spec.get(section, {}), names))


def _given(spec: Spec, place: Sequence[str]) -> Any:
    value: Any = spec
    for step in place:
        value = value.get(step, _NOTHING) if isinstance(value, Mapping) else _NOTHING
    return value


def _refuse_foreign(field: RunField, value: object) -> None:
    """What the check does not see: values that are not JSON, and keys of neither the environment nor the trainer."""
    try:
        json_value(value)
    except ValueError as error:
        raise ToolRefusedError(f"{field.path}: {error}") from None
    if field.place[0] not in FREE_FORM and looks_like_a_key(value):
        raise ToolRefusedError(f"{field.path}: {KEY_IN_RUN}")


def _taken(value: object, field: RunField) -> tuple[Any, str]:
    """Clients that only send strings send "8" for 8: if the field accepts no string, the value is parsed."""
    if not isinstance(value, str) or type_problem(value, field.annotation, field.choices) is None:
        return value, ""
    try:
        spelled = json_value(json.loads(_PYTHON_WORDS.get(value, value)))
    except (ValueError, RecursionError):
        return value, ""
    if type_problem(spelled, field.annotation, field.choices) is not None:
        return value, ""
    return spelled, f"; the text {text_of(redacted(value))} was taken as {text_of(redacted(spelled))}"
