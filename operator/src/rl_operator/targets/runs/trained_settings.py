"""What is in force for a run: from the config that it was started with, else from its spec, runtime and defaults."""

import json
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any

from rl_operator.api.catalog import Catalog, CatalogEnvironment, EnvironmentField
from rl_operator.api.refusal import redacted
from rl_operator.api.run_inputs import Sections, effective_sections
from rl_operator.api.runtime import Runtime
from rl_operator.api.settings.fields import TRAINER_FIELDS, WIRED_FIELDS, Section, flattened
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.source_files import short_source_hash
from rl_operator.documents.yaml_text import YamlError, read_yaml
from rl_operator.operator_errors import ForbiddenError, NameTakenError, TemplateChangedError
from rl_operator.render.container_template import CONFIG_KEY
from rl_operator.render.environment_pod import source_of
from rl_operator.render.frozen_texts import ENVIRONMENTS_KEY, frozen_texts
from rl_operator.targets.target import Target


class KnownEnvironments:
    """Runtimes of a target and their environments: each catalog is read once, and what may not be read is unknown."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._catalog = cache(self._read)

    @cached_property
    def runtimes(self) -> Mapping[str, Runtime]:
        try:
            return self._target.runtimes()
        except ForbiddenError:
            return {}

    def chosen(self, runtime_name: str, environment: str) -> CatalogEnvironment | None:
        catalog = self._catalog(runtime_name)
        return catalog.chosen(environment) if catalog else None

    def _read(self, runtime_name: str) -> Catalog | None:
        runtime = self.runtimes.get(runtime_name)
        return self._target.catalog(runtime) if runtime else None


class TrainedSettings:
    """The settings of several runs of a target. What the caller may not read is left out."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._environments = KnownEnvironments(target)

    def of(self, run: TrainingRun) -> dict[str, Any]:
        """By path: `environment`, `runtime`, `model`, `config.group_size`, `trainer.learning_rate`, `startFrom.run`;
        values that look like keys are not shown.
        """
        runtime = self._environments.runtimes.get(run.spec.runtime)
        known = self._environments.chosen(run.spec.runtime, run.spec.environment)
        sections = self._frozen(run, known) or _of_spec(run, runtime, known)
        found = {name: redacted(value, name) for name, value in _paths(run, known, sections)}
        files = self._files(run)
        return {**found, "files": files} if files else found

    def _frozen(self, run: TrainingRun, known: CatalogEnvironment | None) -> Sections | None:
        """The sections of its config file; None: it has not started, or what it was started with is not known."""
        try:
            documents = read_yaml(self._texts(run)[CONFIG_KEY])
        except (KeyError, YamlError):
            return None
        config = documents[0] if len(documents) == 1 else None
        if not isinstance(config, dict):
            return None
        env = flattened(config.get("env") or {}, known.fields_by_name if known else ())
        openai: dict[str, Any] = next(iter(config.get("openai") or ()), {})
        return Sections(env=env, openai=openai, trainer=flattened(config.get("tinker") or {}, TRAINER_FIELDS))

    def _files(self, run: TrainingRun) -> str | None:
        """A hash of the files of an own environment, as the run froze them."""
        frozen = self._texts(run).get(ENVIRONMENTS_KEY)
        source = source_of(json.loads(frozen)["pod"]) if frozen else None
        return short_source_hash(source[1]) if source else None

    def _texts(self, run: TrainingRun) -> Mapping[str, str]:
        """What the run was started with; nothing if that is gone, may not be read, or has been exchanged."""
        name = run.status.config_map_name
        try:
            found = self._target.read("ConfigMap", run.metadata.namespace, name) if name else None
            return frozen_texts(found, run) if found else {}
        except (ForbiddenError, NameTakenError, TemplateChangedError):
            return {}


def _of_spec(run: TrainingRun, runtime: Runtime | None, known: CatalogEnvironment | None) -> Sections:
    """What would be in force if it started now."""
    if runtime is None or known is None:
        return Sections(env=run.spec.config, openai={}, trainer=flattened(run.spec.trainer, TRAINER_FIELDS))
    return effective_sections(run, runtime, known)


def _paths(run: TrainingRun, known: CatalogEnvironment | None, sections: Sections) -> Iterator[tuple[str, object]]:
    """A field that nobody set has its default, as far as that is known."""
    yield from (("environment", run.spec.environment), ("runtime", run.spec.runtime))
    if model := sections.openai.get("model_name"):
        yield "model", model
    if run.spec.start_from:
        yield from ((f"startFrom.{name}", value) for name, value in run.spec.start_from.to_wire().items())
    yield "environmentReplicas", run.spec.environment_replicas
    places: tuple[tuple[str, Section, Mapping[str, EnvironmentField], Mapping[str, object]], ...] = (
        ("config", "env", known.fields_by_name if known else {}, sections.env),
        ("trainer", "trainer", TRAINER_FIELDS, sections.trainer),
    )
    for part, section, fields, values in places:
        for name, value in {**{name: field.default for name, field in fields.items()}, **values}.items():
            if (section, name) not in WIRED_FIELDS:
                yield f"{part}.{name}", value
