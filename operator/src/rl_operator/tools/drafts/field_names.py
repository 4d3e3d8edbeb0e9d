"""From an agent's name for a field to its path in a run's spec. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pydantic.fields import FieldInfo

from rl_operator.api.catalog import CatalogEnvironment
from rl_operator.api.refusal import redacted
from rl_operator.api.runtime import Runtime
from rl_operator.api.settings.fields import WIRED_FIELDS, WiredField
from rl_operator.api.training_run import RunSpec, WandbSettings
from rl_operator.api.value_text import text_of
from rl_operator.check.name_lists import most_alike
from rl_operator.documents.parse import nearest, renamed
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


@dataclass(frozen=True)
class RunField:
    """One value that a run may set. `place` is its path below `spec`, in the wire form."""

    name: str
    place: tuple[str, ...]
    type: str
    annotation: str
    default: Any
    description: str
    allowed: str = ""
    choices: tuple[Any, ...] | None = None
    locked: bool = False

    @property
    def path(self) -> str:
        """`config.group_size`, `wandb.project`, `spec.backoffLimit`: unique."""
        return ".".join(self.place if len(self.place) > 1 else ("spec", *self.place))

    @property
    def spellings(self) -> frozenset[str]:
        """All accepted names for it."""
        full = f"spec.{'.'.join(self.place)}"
        match self.place:
            case ("config", *inner):
                return frozenset({self.name, self.path, full, f"env.{'.'.join(inner)}"})
            case (_,):
                return frozenset({self.name, full, f"spec.{self.name}"})
        return frozenset({self.name, self.path, full})


@dataclass(frozen=True)
class RunFields:
    """All that a run of an environment with a runtime may set: the environment's, the trainer's, the run's own."""

    all: tuple[RunField, ...]

    @cached_property
    def _by_spelling(self) -> Mapping[str, Sequence[RunField]]:
        found: dict[str, list[RunField]] = defaultdict(list)
        for field in self.all:
            for spelling in field.spellings:
                found[spelling].append(field)
        return found

    def named(self, name: str) -> RunField:
        """Raises ToolRefusedError: unknown (`available_fields`), ambiguous, the platform's, or another tool's."""
        found = self._by_spelling.get(MEANT.get(name, name), ())
        if len(found) == 1:
            return found[0]
        if found:
            paths = [field.path for field in found]
            raise ToolRefusedError(f"{name} may be {' or '.join(paths)}: name one of them", available_fields=paths)
        raise self._unknown(name)

    def called(self, field: RunField) -> str:
        """The shortest name by which `named` finds it."""
        found = self._by_spelling.get(MEANT.get(field.name, field.name), ())
        return field.name if tuple(found) == (field,) else field.path

    def _unknown(self, name: str) -> ToolRefusedError:
        if wired := _wired(name):
            return ToolRefusedError(f"{name} is not yours to set: {wired.instead}")
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
    settable = (_from_settable(field) for field in fields_of(environment, runtime))
    return RunFields((*settable, *_wandb(runtime), *_own()))


def _from_settable(field: SettableField) -> RunField:
    return RunField(
        name=field.name,
        place=field.place,
        type=field.type,
        annotation=field.field.type,
        default=field.default,
        description=field.field.description,
        allowed=field.allowed,
        choices=field.field.choices,
        locked=field.locked,
    )


def _wandb(runtime: Runtime) -> Iterator[RunField]:
    for name, info in WandbSettings.model_fields.items():
        type_ = "list[str]" if name == "tags" else "str | None"
        default = getattr(runtime.spec.wandb, name, None)
        yield _typed(f"wandb_{name}", ("wandb", name), info, type_, [] if name == "tags" else default)


def _own() -> Iterator[RunField]:
    for name in OWN_SETTINGS:
        info = RunSpec.model_fields[name]
        type_ = "dict | None" if name in OBJECTS else "int | None" if info.annotation is not int else "int"
        yield _typed(name, (info.alias or name,), info, type_, info.default)


def _typed(name: str, place: tuple[str, ...], info: FieldInfo, type_: str, default: object) -> RunField:
    return RunField(name, place, type_, type_, default, info.description or "", _limits(info))


def _limits(info: FieldInfo) -> str:
    """The limits of a number."""
    limits = {word: getattr(each, word) for each in info.metadata for word in ("ge", "le") if hasattr(each, word)}
    words = {"ge": "at least", "le": "at most"}
    return ", ".join(f"{words[word]} {limit}" for word, limit in limits.items())


def _wired(name: str) -> WiredField | None:
    """What belongs to the platform, by any of the names that agents know."""
    section, _, inner = name.removeprefix("spec.").replace("config.", "env.", 1).rpartition(".")
    return next(
        (field for field in WIRED_FIELDS.values() if field.name == inner and section in ("", field.section)), None
    )
