"""What a run sets differently from its environment's defaults: by that an agent tells its runs apart."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from rl_operator.api.catalog import Catalog
from rl_operator.api.refusal import redacted
from rl_operator.api.runtime import Runtime
from rl_operator.api.settings.fields import TRAINER_FIELDS, flattened
from rl_operator.api.training_run import RunSpec
from rl_operator.api.value_text import same_value, text_of
from rl_operator.operator_errors import ForbiddenError
from rl_operator.status.text.sentences import cut
from rl_operator.targets.inputs.parameters import fields_of
from rl_operator.targets.target import Target
from rl_operator.tools.agent_tool import Answer

MOST_FIELDS: Final = 12
LONGEST_VALUE: Final = 80

Place = tuple[str, str]
"""`config` or `trainer`, and the field's name."""


class SettingsInForce:
    """Settings of runs that set nothing; each runtime's catalog is read once, and what may not be read is unknown."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._catalogs: dict[str, Catalog | None] = {}
        self._known: dict[tuple[str, str], Mapping[Place, object]] = {}

    def changed(self, spec: RunSpec) -> Answer:
        """The fields of `config` and `trainer` that the run sets to something else, and how many did not fit."""
        usual = self._usual(spec)
        config = flattened(spec.config, [name for section, name in usual if section == "config"])
        given = {
            (section, name): value
            for section, values in (("config", config), ("trainer", flattened(spec.trainer, TRAINER_FIELDS)))
            for name, value in sorted(values.items())
        }
        changed = {place: value for place, value in given.items() if not same_value(value, usual.get(place, ...))}
        shown = {name: _short(redacted(value, name)) for (_, name), value in list(changed.items())[:MOST_FIELDS]}
        more = len(changed) - len(shown)
        return {"changed_config": shown, "more_changed": more} if more else {"changed_config": shown}

    def _usual(self, spec: RunSpec) -> Mapping[Place, object]:
        key = spec.runtime, spec.environment
        if key not in self._known:
            self._known[key] = self._read(*key)
        return self._known[key]

    def _read(self, runtime_name: str, environment: str) -> Mapping[Place, Any]:
        """Reads the settings; of an own environment only the trainer's are known."""
        trainer = {("trainer", name): field.default for name, field in TRAINER_FIELDS.items()}
        runtime = self._runtimes.get(runtime_name)
        if runtime and runtime_name not in self._catalogs:
            self._catalogs[runtime_name] = self._target.catalog(runtime)
        catalog = self._catalogs.get(runtime_name)
        known = catalog.chosen(environment) if catalog else None
        if runtime is None or known is None:
            return trainer
        return {(field.section, field.name): field.default for field in fields_of(known, runtime)}

    @cached_property
    def _runtimes(self) -> Mapping[str, Runtime]:
        try:
            return self._target.runtimes()
        except ForbiddenError:
            return {}


def _short(value: object) -> object:
    text = text_of(value)
    return value if len(text) <= LONGEST_VALUE else cut(text, LONGEST_VALUE)
