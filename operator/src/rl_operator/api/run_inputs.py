"""Everything that a run is checked against and rendered from, besides the run itself, and the settings that are in
force for it: which value wins is the environment's own < runtime defaults < the run < locked.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from rl_operator.api.catalog import Catalog, CatalogEnvironment, EnvironmentField, is_taskset, needs_image
from rl_operator.api.environment import Environment, runs_apart
from rl_operator.api.names import OWN_PREFIX
from rl_operator.api.refusal import field_path
from rl_operator.api.runtime import Bound, Runtime, RuntimeTeacher, SecretKey
from rl_operator.api.settings.fields import (
    ROLLOUT_SECONDS,
    SHARED_FIELDS,
    TRAINER_FIELDS,
    WIRED_FIELDS,
    Section,
    flattened,
    outer_names,
    steps_of,
)
from rl_operator.api.spec_parts.openenv import OpenEnv
from rl_operator.api.status_fields import Condition, Phase, StartedFrom
from rl_operator.api.training_run import TrainingRun
from rl_operator.api.value_text import is_number


@dataclass(frozen=True)
class ParentRun:
    """The run that `spec.startFrom.run` names, as it is now. `phase` None: there is no such run (or it is new)."""

    name: str
    exists: bool
    phase: Phase | None = None
    state: StartedFrom | None = None
    """Its last state; None: it did not keep one."""

    expires_at: str | None = None
    expired: bool = False
    """Whether the backend has already deleted that state."""

    environment: str | None = None

    base_model: str | None = None
    """What it trained, according to its own frozen config; None: that is not known."""

    unknown_because: str = "its ConfigMap is gone"

    adapter_shape: Mapping[str, object] = field(default_factory=dict)
    """The rank and the layers of the adapter that it trained, by the trainer's fields."""


@dataclass(frozen=True)
class ChosenEnvironment:
    """What `spec.environment` refers to. Without `known` there is no such environment, or not yet (`pending`)."""

    known: CatalogEnvironment | None = None
    own: Environment | None = None
    """The RLEnvironment (in local mode also a file) behind it: it runs in its own pods."""

    available: tuple[str, ...] = ()
    """Names of the existing environments, for a hint."""

    absence: str | None = None
    """Why an environment of that library is not there, and what to do; None: nothing more is known."""

    pending: tuple[str, str] | None = None
    """Reason and sentence for something that will resolve itself: the run waits."""

    @property
    def runs_own_code(self) -> bool:
        """Whether a user's own code or command can read the environment's variables; what plays against an OpenEnv
        server is ours. Every question of who may hold a key is this one.
        """
        apart = self.own is not None or (self.known is not None and runs_apart(self.known.name))
        return apart and self.openenv is None

    @property
    def openenv(self) -> OpenEnv | None:
        """The OpenEnv server that it plays against, if it does."""
        return self.own.spec.openenv if self.own else None


@dataclass(frozen=True)
class Sections:
    """The values that were set, by section, and the shared fields of `env`, which are always present. `steps_per_eval`
    is, too, where it is known: the trainer saves the weights that the environment evaluates. Nested fields
    go by their names in the catalog (`taskset.size`).
    """

    env: dict[str, Any]
    openai: dict[str, Any]
    trainer: dict[str, Any]


@dataclass(frozen=True)
class RunInputs:
    runtime: Runtime
    environment: ChosenEnvironment
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    parent: ParentRun | None = None
    """Set if the run names one."""

    @property
    def known(self) -> CatalogEnvironment:
        """The environment of an accepted run."""
        assert self.environment.known is not None, "an accepted run has a known environment"
        return self.environment.known

    @property
    def environment_keys(self) -> tuple[SecretKey, ...]:
        """Of those that the runtime lists, an RLEnvironment gets what it asks for, which a command cannot: it gets
        none. What is bundled gets all.
        """
        listed, own = self.runtime.spec.secret_environment, self.environment.own
        if own is not None:
            return tuple(secret for secret in own.spec.secret_environment if secret in listed)
        return () if self.environment.runs_own_code else listed

    def sections(self, run: TrainingRun) -> Sections:
        """The settings of an accepted run."""
        return effective_sections(run, self.runtime, self.known)

    def teacher(self, run: TrainingRun) -> RuntimeTeacher | None:
        """The teacher that an accepted run learns from."""
        top_k = self.known.fields_by_name.get(TEACHER_TOP_K)
        asked = self.sections(run).env.get(TEACHER_TOP_K, top_k.default if top_k else 0)
        return self.runtime.spec.teacher if asked else None


def choose_environment(
    name: str, runtime: Runtime, catalog: Catalog | None, own: Environment | None
) -> ChosenEnvironment:
    """From a name to the environment. `catalog` None: not read yet; `own`: the object that the name refers to."""
    if own is not None:
        return _own(name, own)
    if name.startswith(OWN_PREFIX) or name.endswith(".py"):
        return ChosenEnvironment(available=catalog.names if catalog else ())
    if catalog is None:
        what = f"the catalog of runtime {runtime.metadata.name!r}"
        return ChosenEnvironment(pending=("CatalogPending", _waiting(what, runtime.status.condition("Reconciling"))))
    absence = catalog.absence_of(name)
    if absence is None and is_taskset(name) and not any(map(is_taskset, catalog.names)):
        absence = needs_image(runtime.metadata.name)
    return ChosenEnvironment(known=catalog.chosen(name), available=catalog.names, absence=absence)


def _own(name: str, own: Environment) -> ChosenEnvironment:
    """An own environment is known once its current spec has been read."""
    status = own.status
    ready = status.condition("Ready")
    if status.observed_generation != own.metadata.generation or (ready is None and not status.condition("Stalled")):
        sentence = _waiting(f"RLEnvironment {own.metadata.name!r}", status.condition("Reconciling"))
        return ChosenEnvironment(own=own, pending=("EnvironmentPending", sentence))
    if ready is None or ready.status != "True":
        return ChosenEnvironment(own=own)
    found = CatalogEnvironment(
        name=name,
        class_name=status.class_name or "",
        file_path=status.entry or "",
        description=status.description or "",
        draws_items=bool(status.draws_items),
        fields=status.fields,
    )
    return ChosenEnvironment(known=found, own=own)


def _waiting(what: str, reconciling: Condition | None) -> str:
    """With the object's own message: a failed reading is retried."""
    return f"Waiting for {what}: {reconciling.message if reconciling else 'it is going to be read.'}"


TEACHER_TOP_K: Final = "teacher_top_k"
"""The field of `env` that asks for a teacher."""

WORKER_TIMEOUT: Final = "worker_timeout"
UNSET_WORKER_TIMEOUT: Final = 600
"""atroposlib's default, of which nobody can tell whether anybody meant it."""


def effective_sections(run: TrainingRun, runtime: Runtime, environment: CatalogEnvironment) -> Sections:
    """Merge in the order of precedence; keys in alphabetical order, so that equal settings give equal text.

    A runtime serves many environments: its values for fields that this one lacks are left out.
    """
    defaults, locked, known = runtime.spec.defaults, runtime.spec.locked, environment.fields_by_name
    shared: dict[str, object] = {name: known[name].default for name in SHARED_FIELDS if name in known}
    return Sections(
        env=_merge(
            "env",
            shared | _own_interval(known),
            _known_only(flattened(defaults.env, known), known),
            flattened(run.spec.config, known),
            _known_only(flattened(locked.env, known), known),
        ),
        openai=_merge("openai", defaults.openai, locked.openai),
        trainer=_merge(
            "trainer",
            _known_only(flattened(defaults.trainer, TRAINER_FIELDS), TRAINER_FIELDS),
            flattened(run.spec.trainer, TRAINER_FIELDS),
            flattened(locked.trainer, TRAINER_FIELDS),
        ),
    )


def base_model(env: Mapping[str, object], openai: Mapping[str, object]) -> str | None:
    """What a config file makes the trainer train an adapter of (`RunConfig.base_model` of tinker_atropos)."""
    model = openai.get("model_name") or env.get("tokenizer_name")
    return str(model) if model else None


def rollout_seconds(env: Mapping[str, object], environment: CatalogEnvironment) -> float | None:
    """How long a rollout with a sandbox pod may take, by the values of `Sections.env`; None: nothing says so."""
    field = field_of_rollout_seconds(env, environment)
    return _seconds(field, env, environment) if field else None


def field_of_rollout_seconds(env: Mapping[str, object], environment: CatalogEnvironment) -> str | None:
    """Which field of `env` bounds a rollout: `rollout_seconds`, or a `worker_timeout` that is less and not the default,
    wherever it was set. The environment has the same rule (tinker_atropos.environments.agent_environment).
    """
    longest, worker = (_seconds(name, env, environment) for name in (ROLLOUT_SECONDS, WORKER_TIMEOUT))
    if longest is None:
        return None
    caps = worker is not None and worker != UNSET_WORKER_TIMEOUT and worker < longest
    return WORKER_TIMEOUT if caps else ROLLOUT_SECONDS


def _seconds(name: str, env: Mapping[str, Any], environment: CatalogEnvironment) -> float | None:
    """None: the value is not known, or no time."""
    known = environment.fields_by_name.get(name)
    seconds = env.get(name, known.default if known else None)
    return seconds if is_number(seconds) and 0 < seconds < math.inf else None


def _own_interval(known: Mapping[str, EnvironmentField]) -> dict[str, int]:
    """The environment's own `steps_per_eval`. Authors turn evaluation off with -1, too; a value that only running
    `config_init` would tell is left out.
    """
    own = known["steps_per_eval"].default if "steps_per_eval" in known else None
    return {"steps_per_eval": max(0, own)} if type(own) is int else {}


def _merge(section: Section, *layers: Mapping[str, object]) -> dict[str, object]:
    merged = {name: value for layer in layers for name, value in layer.items()}
    return {name: _ordered(merged[name]) for name in sorted(merged) if (section, name) not in WIRED_FIELDS}


def _ordered(value: object) -> object:
    """The same JSON with the keys of its mappings in alphabetical order."""
    match value:
        case Mapping():
            return {key: _ordered(value[key]) for key in sorted(value)}
        case list() | tuple():
            return [_ordered(item) for item in value]
    return value


def _known_only(values: Mapping[str, object], known: Mapping[str, object]) -> dict[str, object]:
    """The values of known fields; all of them if nothing is known about the fields."""
    return {name: value for name, value in values.items() if not known or name in known or name in SHARED_FIELDS}


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
    """A run and its inputs, as the check looks at them."""

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
        owner = f"environment {self.environment.name!r}"
        return self._section("env", owner, self.run.spec.config, self.environment.fields_by_name)

    @cached_property
    def trainer(self) -> SectionSubject:
        return self._section("trainer", "the trainer", self.run.spec.trainer, TRAINER_FIELDS)

    def _section(
        self, section: Section, owner: str, written: Mapping[str, Any], known: Mapping[str, EnvironmentField]
    ) -> SectionSubject:
        spec = self.runtime.spec
        return SectionSubject(
            section=section,
            owner=owner,
            runtime=self.runtime.metadata.name,
            written=written,
            given=flattened(written, known),
            effective=getattr(self.sections, section),
            known=known,
            locked=flattened(getattr(spec.locked, section), known),
            bounds=getattr(spec.bounds, section),
        )
