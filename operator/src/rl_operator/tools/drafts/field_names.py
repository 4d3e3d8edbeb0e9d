"""From an agent's name for a field to its path in a run's spec, and from requested changes to a new spec. Pure: nothing
is written, nothing is checked.
"""

import copy
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pydantic.fields import FieldInfo

from rl_operator.api.catalog import CatalogEnvironment, EnvironmentField
from rl_operator.api.hints import KEY_IN_RUN
from rl_operator.api.refusal import looks_like_a_key, redacted
from rl_operator.api.runtime import Runtime
from rl_operator.api.settings.fields import WIRED_FIELDS, flattened, outer_names, steps_of
from rl_operator.api.training_run import RunSpec, WandbSettings
from rl_operator.api.value_text import same_value, text_of
from rl_operator.check.field_rules import type_problem
from rl_operator.check.name_lists import most_alike
from rl_operator.documents.parse import nearest, renamed
from rl_operator.documents.yaml_text import json_value
from rl_operator.targets.inputs.parameters import SettableField, fields_of
from rl_operator.tools.agent_tool import ToolRefusedError

FREE_FORM: Final = ("config", "trainer")
"""Sections whose fields belong to the environment and the trainer."""

OWN_SETTINGS: Final = (
    "backoff_limit",
    "start_deadline_seconds",
    "progress_deadline_seconds",
    "active_deadline_seconds",
    "budget",
    "ttl_seconds_after_finished",
    "priority",
    "environment_replicas",
    "start_from",
    "sandbox",
)
OBJECTS: Final = frozenset({"budget", "start_from", "sandbox"})
"""Those of them that are mappings, given whole."""

ELSEWHERE: Final[Mapping[str, str]] = {
    "environment": "rl_select_environment drafts a run of another environment",
    "runtime": "rl_select_environment drafts a run with another runtime",
    "suspend": "rl_start_training starts a run, and rl_stop_training stops it",
}
"""Fields of the spec that other tools set."""

MEANT: Final[Mapping[str, str]] = {"wandb_name": "wandb.name", "wandb_run_name": "wandb.name"}
"""Every Atropos environment has a field `wandb_name`, which names it among a run's environments: a caller that gives
the bare name means the one that W&B shows. The other one is the trainer's.
"""


def spellings_of(field: SettableField) -> frozenset[str]:
    """All accepted names for it."""
    full = f"spec.{'.'.join(field.place)}"
    match field.place:
        case ("config", *inner):
            return frozenset({field.name, field.path, full, f"env.{'.'.join(inner)}"})
        case (_,):
            return frozenset({field.name, full, f"spec.{field.name}"})
    return frozenset({field.name, field.path, full})


@dataclass(frozen=True)
class RunFields:
    """All that a run of an environment with a runtime may set: the environment's, the trainer's, the run's own."""

    all: tuple[SettableField, ...]

    @cached_property
    def _by_spelling(self) -> Mapping[str, Sequence[SettableField]]:
        found: dict[str, list[SettableField]] = defaultdict(list)
        for field in self.all:
            for spelling in spellings_of(field):
                found[spelling].append(field)
        return found

    def named(self, name: str) -> SettableField:
        """Raises ToolRefusedError: unknown (`available_fields`), ambiguous, the platform's, or another tool's."""
        found = self._by_spelling.get(MEANT.get(name, name), ())
        if len(found) == 1:
            return found[0]
        if found:
            paths = [field.path for field in found]
            raise ToolRefusedError(f"{name} may be {' or '.join(paths)}: name one of them", available_fields=paths)
        raise self._unknown(name)

    def called(self, field: SettableField) -> str:
        """The shortest name by which `named` finds it."""
        found = self._by_spelling.get(MEANT.get(field.name, field.name), ())
        return field.name if tuple(found) == (field,) else field.path

    def _unknown(self, name: str) -> ToolRefusedError:
        if instead := _wired(name):
            return ToolRefusedError(f"{name} is not yours to set: {instead}")
        if other := ELSEWHERE.get(name.removeprefix("spec.")):
            return ToolRefusedError(f"{name} is not edited: {other}")
        names = [self.called(field) for field in self.all]
        written = text_of(redacted(name))
        if today := renamed(name, self._by_spelling):
            return ToolRefusedError(f"there is no field {written}; it is called {today!r}", available_fields=[today])
        return ToolRefusedError(
            f"there is no field {written}{nearest(name, names)}; rl_get_current_config lists what there is",
            available_fields=most_alike(name, names),
        )


def run_fields(environment: CatalogEnvironment, runtime: Runtime) -> RunFields:
    """In the order that is most useful for a reader."""
    return RunFields((*fields_of(environment, runtime), *_wandb(runtime), *_own()))


def _wandb(runtime: Runtime) -> Iterator[SettableField]:
    for name, info in WandbSettings.model_fields.items():
        type_ = "list[str]" if name == "tags" else "str | None"
        default = getattr(runtime.spec.wandb, name, None)
        yield _typed(f"wandb_{name}", ("wandb", name), info, type_, [] if name == "tags" else default)


def _own() -> Iterator[SettableField]:
    for name in OWN_SETTINGS:
        info = RunSpec.model_fields[name]
        type_ = "dict | None" if name in OBJECTS else "int | None" if info.annotation is not int else "int"
        yield _typed(name, (info.alias or name,), info, type_, info.default)


def _typed(name: str, place: tuple[str, ...], info: FieldInfo, type_: str, default: object) -> SettableField:
    field = EnvironmentField(name=name, type=type_, default=default, description=info.description or "")
    return SettableField(field, place, default, _limits(info))


def _limits(info: FieldInfo) -> str:
    limits = {word: getattr(each, word) for each in info.metadata for word in ("ge", "le") if hasattr(each, word)}
    words = {"ge": "at least", "le": "at most"}
    return ", ".join(f"{words[word]} {limit}" for word, limit in limits.items())


def _wired(name: str) -> str | None:
    """What to do instead of setting what belongs to the platform, by any of the names that agents know."""
    given, _, inner = name.removeprefix("spec.").replace("config.", "env.", 1).rpartition(".")
    found = (said for (section, field), said in WIRED_FIELDS.items() if field == inner and given in ("", section))
    return next(found, None)


_PYTHON_WORDS: Final[Mapping[str, str]] = {"True": "true", "False": "false", "None": "null"}

_NOTHING: Final = object()

Spec = Mapping[str, Any]
"""A run's spec, in its wire form."""


@dataclass(frozen=True)
class Edit:
    """A field and its new value; None: the run no longer sets it. `note`: how the input was interpreted."""

    field: SettableField
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
    """The edits, and what is wrong with the others: an unknown name, a second name of one field, what no run can
    hold.
    """
    edits: dict[tuple[str, ...], tuple[str, Edit]] = {}
    faults = list[ToolRefusedError]()
    for name, value in values.items():
        try:
            field = fields.named(name)
            _refuse_foreign(field, value)
        except ToolRefusedError as error:
            faults.append(error)
            continue
        edit, place = Edit(field, *_taken(value, field)), field.place
        if place in edits:
            faults.append(ToolRefusedError(f"{edits[place][0]} and {name} are one field, {field.path}: give it once"))
        else:
            edits[place] = name, edit
    return tuple(edit for _, edit in edits.values()), tuple(faults)


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


def value_in(spec: Spec, field: SettableField) -> Any:
    """The effective value, in the form that an answer may show."""
    return redacted(_in_force(spec, field), field.name)


def _in_force(spec: Spec, field: SettableField) -> Any:
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


def _refuse_foreign(field: SettableField, value: object) -> None:
    """What the check does not see: values that are not JSON, and keys of neither the environment nor the trainer."""
    try:
        json_value(value)
    except ValueError as error:
        raise ToolRefusedError(f"{field.path}: {error}") from None
    if field.place[0] not in FREE_FORM and looks_like_a_key(value):
        raise ToolRefusedError(f"{field.path}: {KEY_IN_RUN}")


def _taken(value: object, field: SettableField) -> tuple[Any, str]:
    """Clients that only send strings send "8" for 8: if the field accepts no string, the value is parsed."""
    if not isinstance(value, str) or type_problem(value, field.field.type, field.field.choices) is None:
        return value, ""
    try:
        spelled = json_value(json.loads(_PYTHON_WORDS.get(value, value)))
    except (ValueError, RecursionError):
        return value, ""
    if type_problem(spelled, field.field.type, field.field.choices) is not None:
        return value, ""
    return spelled, f"; the text {text_of(redacted(value))} was taken as {text_of(redacted(spelled))}"
