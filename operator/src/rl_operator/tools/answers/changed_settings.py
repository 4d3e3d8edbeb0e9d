"""What a run sets differently from its environment's defaults: by that an agent tells its runs apart."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from rl_operator.api.refusal import redacted
from rl_operator.api.settings.fields import TRAINER_FIELDS, flattened
from rl_operator.api.training_run import RunSpec
from rl_operator.api.value_text import same_value
from rl_operator.targets.inputs.parameters import fields_of
from rl_operator.targets.runs.trained_settings import KnownEnvironments
from rl_operator.targets.target import Target
from rl_operator.tools.agent_tool import Answer
from rl_operator.tools.answers.shown_text import short_value

MOST_FIELDS: Final = 12

Place = tuple[str, str]
"""`config` or `trainer`, and the field's name."""


class SettingsInForce:
    """Settings of runs that set nothing, as far as they are known."""

    def __init__(self, target: Target) -> None:
        self._environments = KnownEnvironments(target)
        self._usual = cache(self._read)

    def changed(self, spec: RunSpec) -> Answer:
        """The fields of `config` and `trainer` that the run sets to something else, and how many did not fit."""
        usual = self._usual(spec.runtime, spec.environment)
        config = flattened(spec.config, [name for section, name in usual if section == "config"])
        given = {
            (section, name): value
            for section, values in (("config", config), ("trainer", flattened(spec.trainer, TRAINER_FIELDS)))
            for name, value in sorted(values.items())
        }
        changed = {place: value for place, value in given.items() if not same_value(value, usual.get(place, ...))}
        shown = {name: short_value(redacted(value, name)) for (_, name), value in list(changed.items())[:MOST_FIELDS]}
        more = len(changed) - len(shown)
        return {"changed_config": shown, "more_changed": more} if more else {"changed_config": shown}

    def _read(self, runtime_name: str, environment: str) -> Mapping[Place, Any]:
        """Reads the settings; of an own environment only the trainer's are known."""
        trainer = {("trainer", name): field.default for name, field in TRAINER_FIELDS.items()}
        runtime = self._environments.runtimes.get(runtime_name)
        known = self._environments.chosen(runtime_name, environment)
        if runtime is None or known is None:
            return trainer
        return {(field.section, field.name): field.default for field in fields_of(known, runtime)}
