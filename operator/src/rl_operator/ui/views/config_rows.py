"""A run's config: every field with its value, and who decided it. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rl_operator.api.names import API_VERSION, RUN_KIND
from rl_operator.api.refusal import NOT_SHOWN, redacted
from rl_operator.api.settings.fields import WIRED_FIELDS
from rl_operator.api.training_run import RunSpec, TrainingRun, WandbSettings
from rl_operator.documents.yaml_text import write_yaml
from rl_operator.rollouts.visible_text import visible
from rl_operator.targets.inputs.parameters import SPEC_SECTIONS, SettableField
from rl_operator.ui.views.page_text import short, short_value

Origin = Literal["set", "default", "locked", "wired"]

ORIGINS: Final[Mapping[Origin, str]] = {
    "set": "this run sets it",
    "default": "the default of the runtime or the environment",
    "locked": "the runtime fixes it for all its runs",
    "wired": "the platform sets it",
}

LONGEST_FILE: Final = 50_000
"""Characters."""

Settings = Mapping[str, Any]
"""What is in force: `targets.trained_settings`."""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """`default`: empty if the value is the default. `allowed`, `meaning`: empty if nothing is known."""

    path: str
    value: str
    origin: Origin
    default: str = ""
    allowed: str = ""
    meaning: str = ""


def config_rows(run: TrainingRun, fields: Sequence[SettableField], settings: Settings) -> list[ConfigRow]:
    """The run's own fields, the environment's, the trainer's, and those that nobody sets; what the run sets first.
    Without `fields` (the environment is not known here) only what is in force.
    """
    rows = [*_own(run), *(_settable(run, field, settings) for field in fields)]
    listed = {row.path for row in rows}
    rows += [
        ConfigRow(name, _text(value, name), "set" if _value_at(run, name.split(".")) is not None else "default")
        for name, value in settings.items()
        if name.partition(".")[0] in SPEC_SECTIONS and name not in listed
    ]
    return sorted([*rows, *_wired()], key=lambda row: list(ORIGINS).index(row.origin))


def _own(run: TrainingRun) -> Iterator[ConfigRow]:
    """What stands beside `config` and `trainer`."""
    for name, info in RunSpec.model_fields.items():
        path, value, default = info.alias or name, getattr(run.spec, name), info.get_default(call_default_factory=True)
        if path in SPEC_SECTIONS:
            continue
        if isinstance(value, WandbSettings):
            yield from (_plain(f"{path}.{key}", each, None, "") for key, each in value.to_wire().items() if each)
        else:
            given = value.to_wire() if hasattr(value, "to_wire") else value
            required = info.is_required()
            yield _plain(path, given, None if required else default, info.description or "")


def _plain(path: str, value: object, default: object, meaning: str) -> ConfigRow:
    if value == default:
        return ConfigRow(path, _text(value, path), "default", meaning=meaning)
    return ConfigRow(path, _text(value, path), "set", "" if default is None else _text(default, path), "", meaning)


def _settable(run: TrainingRun, field: SettableField, settings: Settings) -> ConfigRow:
    path = f"{field.section}.{field.name}"
    given = _value_at(run, field.place)
    value, default = settings.get(path, field.default), redacted(field.default, field.name)
    origin: Origin = "locked" if field.locked else "default" if given is None and value == default else "set"
    return ConfigRow(
        path=path,
        value=_text(value, field.name),
        origin=origin,
        default=_text(default, field.name) if origin == "set" else "",
        allowed="" if field.locked else short(field.allowed),
        meaning=short(field.field.description),
    )


def _wired() -> Iterator[ConfigRow]:
    words = {section: name for name, section in SPEC_SECTIONS.items()}
    for (section, name), instead in WIRED_FIELDS.items():
        if section in words:
            yield ConfigRow(f"{words[section]}.{name}", "", "wired", meaning=instead)


def _value_at(run: TrainingRun, place: Sequence[str]) -> object:
    """None: the run does not set it."""
    value: Any = {"config": run.spec.config, "trainer": run.spec.trainer}
    for step in place:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _text(value: object, name: str) -> str:
    return short_value(redacted(value, name))


def run_file(run: TrainingRun, spec: Mapping[str, object]) -> str:
    """The run's file as YAML, without what is the default, and without what looks like a key; empty if it is longer
    than a page shows.
    """
    defaults = RunSpec(environment=run.spec.environment).to_wire()
    kept = {name: value for name, value in spec.items() if _says_something(name, value, defaults)}
    document = {
        "apiVersion": API_VERSION,
        "kind": RUN_KIND,
        "metadata": {"name": run.metadata.name},
        "spec": without_keys(kept, "spec"),
    }
    text = write_yaml(document)
    if any(visible(line) != line for line in text.splitlines()):
        text = json.dumps(document, indent=2) + "\n"  # means the same, and hides nothing
    return text if len(text) <= LONGEST_FILE else ""


def _says_something(name: str, value: object, defaults: Mapping[str, object]) -> bool:
    """`suspend` is what somebody asked for meanwhile."""
    if name == "environment":
        return True
    return name != "suspend" and value not in ({}, []) and (name not in defaults or defaults[name] != value)


def without_keys(value: object, name: str) -> object:
    """The same with NOT_SHOWN in the place of keys; nothing is cut."""
    if isinstance(value, Mapping):
        return {key: without_keys(each, str(key)) for key, each in value.items()}
    if isinstance(value, list):
        return [without_keys(each, name) for each in value]
    return NOT_SHOWN if redacted(value, name) == NOT_SHOWN else value
