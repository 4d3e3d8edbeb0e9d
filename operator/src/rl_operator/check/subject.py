"""The input of the rules: a run and its inputs, prepared once."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from rl_operator.api.catalog import CatalogEnvironment, EnvironmentField
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import Bound, Runtime
from rl_operator.api.sections import Sections, effective_sections
from rl_operator.api.settings.fields import TRAINER_FIELDS, Section, flattened, outer_names, steps_of
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import field_path

SPEC_PATHS: Final[dict[Section, str]] = {"env": "spec.config", "trainer": "spec.trainer"}


@dataclass(frozen=True)
class SectionSubject:
    """One section that a run may fill, by names of fields. `known` is empty if nothing is known about the fields."""

    section: Section
    owner: str
    runtime: str
    written: Mapping[str, Any]
    """As the run's file has it: fields inside of a mapping are nested."""

    given: Mapping[str, Any]
    effective: Mapping[str, Any]
    known: Mapping[str, EnvironmentField]
    locked: Mapping[str, Any]
    bounds: Mapping[str, Bound]

    @cached_property
    def outer(self) -> frozenset[str]:
        """Names of mappings that hold fields."""
        return outer_names(self.known)

    def path(self, name: str) -> str:
        return self.path_of(*steps_of(name, self.outer))

    def path_of(self, *steps: str) -> str:
        return field_path((*SPEC_PATHS[self.section].split("."), *steps))

    @property
    def in_force(self) -> dict[str, Any]:
        """All values, with the defaults of fields that are not set."""
        return {name: field.default for name, field in self.known.items()} | dict(self.effective)


@dataclass(frozen=True)
class Subject:
    run: TrainingRun
    inputs: RunInputs

    @property
    def runtime(self) -> Runtime:
        return self.inputs.runtime

    @property
    def environment_exists(self) -> bool:
        return self.inputs.environment.known is not None

    @cached_property
    def environment(self) -> CatalogEnvironment:
        """Without fields when it is not known."""
        return self.inputs.environment.known or CatalogEnvironment(name=self.run.spec.environment)

    @cached_property
    def sections(self) -> Sections:
        return effective_sections(self.run, self.runtime, self.environment)

    @cached_property
    def env(self) -> SectionSubject:
        known = self.environment.fields_by_name
        return SectionSubject(
            section="env",
            owner=f"environment {self.environment.name!r}",
            runtime=self.runtime.metadata.name,
            written=self.run.spec.config,
            given=flattened(self.run.spec.config, known),
            effective=self.sections.env,
            known=known,
            locked=flattened(self.runtime.spec.locked.env, known),
            bounds=self.runtime.spec.bounds.env,
        )

    @cached_property
    def trainer(self) -> SectionSubject:
        return SectionSubject(
            section="trainer",
            owner="the trainer",
            runtime=self.runtime.metadata.name,
            written=self.run.spec.trainer,
            given=self.run.spec.trainer,
            effective=self.sections.trainer,
            known=TRAINER_FIELDS,
            locked=self.runtime.spec.locked.trainer,
            bounds=self.runtime.spec.bounds.trainer,
        )
