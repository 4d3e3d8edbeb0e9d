"""Everything that a run is checked against and rendered from, besides the run itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rl_operator.api.catalog import Catalog, CatalogEnvironment, is_taskset, needs_image
from rl_operator.api.environment import Environment
from rl_operator.api.names import OWN_PREFIX
from rl_operator.api.runtime import Runtime
from rl_operator.api.status_fields import Condition, Phase, StartedFrom


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

    base_model: str | None = None
    """What it trained, according to its own frozen config; None: the ConfigMap is gone."""

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


@dataclass(frozen=True)
class RunInputs:
    runtime: Runtime
    environment: ChosenEnvironment
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    parent: ParentRun | None = None
    """Set if the run names one."""


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
        fields=status.fields,
    )
    return ChosenEnvironment(known=found, own=own)


def _waiting(what: str, reconciling: Condition | None) -> str:
    """With the object's own message: a failed reading is retried."""
    return f"Waiting for {what}: {reconciling.message if reconciling else 'it is going to be read.'}"
