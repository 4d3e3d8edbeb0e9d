"""The catalog: which environments there are and which fields each has, as found by static reading."""

from typing import Any, Final

from pydantic import Field

from rl_operator.api.model import ObservedModel
from rl_operator.api.names import OPENENV_ENVIRONMENT


class EnvironmentField(ObservedModel):
    """One field of an environment's config. Limits are there only where the source states them."""

    name: str = Field(
        description="Name of the field in spec.config; `taskset.size` is `size` in its mapping `taskset`."
    )
    type: str = Field(description="The source's annotation, e.g. `int` or `str | None`.")
    default: Any = Field(
        default=None, description="The effective value when none is set; absent where only running the code would tell."
    )
    description: str = Field(default="", description="What the field means.")
    minimum: float | None = Field(default=None, description="Smallest number that is allowed.")
    exclusive_minimum: float | None = Field(default=None, description="Every number above this one is allowed.")
    maximum: float | None = Field(default=None, description="Largest number that is allowed.")
    exclusive_maximum: float | None = Field(default=None, description="Every number below this one is allowed.")
    min_length: int | None = Field(default=None, description="Fewest characters, or entries, that are allowed.")
    max_length: int | None = Field(default=None, description="Most characters, or entries, that are allowed.")
    pattern: str | None = Field(default=None, description="Regular expression that a text must match somewhere.")
    choices: tuple[object, ...] | None = Field(default=None, description="Values of the enum in the type.")


class CatalogEnvironment(ObservedModel):
    name: str
    class_name: str = ""
    file_path: str = ""
    description: str = ""
    family: str | None = None
    draws_items: bool = False
    fields: tuple[EnvironmentField, ...] = ()

    @property
    def about_items(self) -> str:
        """What does not hold for its items; empty: all does (docs/explanation/data.md)."""
        if not self.draws_items:
            return ""
        return (
            "It draws its items itself (get_next_item): with several processes, or after a restart, nothing promises "
            "that none is missed or comes again."
        )

    @property
    def fields_by_name(self) -> dict[str, EnvironmentField]:
        return {field.name: field for field in self.fields}


class EnvironmentFamily(ObservedModel):
    """Environments of one library, named `FAMILY/NAME`. `fields` are those that all of them have."""

    name: str
    description: str = ""
    fields: tuple[EnvironmentField, ...] = ()


class AbsentFamily(ObservedModel):
    """A library whose environments could be named here. `hint`: what keeps them from it, and what to do."""

    name: str
    hint: str


class CatalogProblem(ObservedModel):
    """Why the files of an own environment cannot be served. `line` counts from 1; `file` is empty where none is to
    blame.

    Reasons: SyntaxError, NoEnvironment, SeveralEnvironments, WrongConfigClass, NotImportable, Unreadable.
    """

    reason: str
    file: str
    line: int | None = None
    message: str

    @property
    def sentence(self) -> str:
        """`my_env.py, line 3: …`."""
        place = f"{self.file}, line {self.line}" if self.line is not None else self.file
        return f"{place}: {self.message}" if place else self.message


class Catalog(ObservedModel):
    """`problem` and `modules` belong to one entry file: its fault, and the files that it imports, itself first. An
    environment of a family is listed with its own fields only: `named` returns it with all.
    """

    families: tuple[EnvironmentFamily, ...] = ()
    environments: tuple[CatalogEnvironment, ...] = ()
    absent: tuple[AbsentFamily, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: CatalogProblem | None = None
    modules: tuple[str, ...] = ()

    @property
    def nameable(self) -> tuple[CatalogEnvironment, ...]:
        """Those that `spec.environment` may name. What plays against a server needs an RLEnvironment that names it."""
        return tuple(each for each in self.environments if each.name != OPENENV_ENVIRONMENT)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of those that may be named. Sorted; a library's after those without one."""
        return tuple(sorted((each.name for each in self.nameable), key=lambda name: ("/" in name, name)))

    def absence_of(self, name: str) -> str | None:
        """Why an environment of an absent library, or the library itself, cannot be named; None: it is of none."""
        family = name.partition("/")[0]
        return next((each.hint for each in self.absent if each.name == family), None)

    def named(self, name: str) -> CatalogEnvironment | None:
        """An environment with all of its fields."""
        found = next((each for each in reversed(self.environments) if each.name == name), None)
        return self.completed(found) if found else None

    def chosen(self, name: str) -> CatalogEnvironment | None:
        """What `spec.environment: NAME` means, under that name: a version in it is not the catalog's to judge."""
        listed = listed_name(name)
        found = self.named(listed) if listed in self.names else None
        return found.with_changes(name=name) if found else None

    def completed(self, environment: CatalogEnvironment) -> CatalogEnvironment:
        """With the fields of its family, too."""
        family = next((each for each in self.families if each.name == environment.family), None)
        if family is None:
            return environment
        own = environment.fields_by_name
        shared = tuple(field for field in family.fields if field.name not in own)
        return environment.with_changes(fields=(*environment.fields, *shared), family=None)

    @property
    def outline(self) -> tuple[CatalogEnvironment, ...]:
        """The environments, each name once, and one entry without fields for each family in place of its members."""
        single = (each for each in self.nameable if each.family is None)
        families = (
            CatalogEnvironment(name=f"{each.name}/NAME", description=each.description) for each in self.families
        )
        return tuple({each.name: each for each in (*single, *families)}.values())


_VERIFIERS: Final = "verifiers"


def needs_image(runtime: str) -> str:
    """On a cluster, where the image that the runtime takes environments from has no taskset."""
    return (
        f"the image of runtime {runtime!r} has no verifiers: set spec.environmentImage of the runtime "
        "(images/environment-verifiers)"
    )


def is_taskset(name: str) -> bool:
    """`verifiers/ID`, or the library's name alone, which lists them."""
    return name.partition("/")[0] == _VERIFIERS


def listed_name(name: str) -> str:
    """The catalog's name of a taskset: `verifiers/word_game` for `verifiers/owner/word-game@VERSION`, which are the
    forms that its library takes. Whether that version is installed is checked where the environment starts. Any other
    name stays as it is.
    """
    if not is_taskset(name) or "/" not in name:
        return name
    taskset, at, version = name.rpartition("/")[2].partition("@")
    if (at and not version) or "@" in version:
        return name
    return f"{_VERIFIERS}/{taskset.replace('-', '_').lower()}"
