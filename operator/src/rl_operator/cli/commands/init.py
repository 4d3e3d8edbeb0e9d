"""`rlctl init`: a run file to start from."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rl_operator.api.catalog import CatalogEnvironment
from rl_operator.api.names import API_VERSION, ENVIRONMENT_KIND, OWN_PREFIX, RUN_KIND
from rl_operator.api.run_inputs import ChosenEnvironment, RunInputs, choose_environment
from rl_operator.api.runtime import Bound, Runtime
from rl_operator.api.settings.fields import at_path
from rl_operator.api.spec_parts.sandboxes import DEFAULT_SIZE
from rl_operator.api.training_run import RunSpec
from rl_operator.check.run_check import check_run
from rl_operator.check.sandbox_rules import TERMINAL_BACKEND
from rl_operator.cli.options import RuntimeName, Scope, on_target
from rl_operator.documents.parse import parse_run
from rl_operator.documents.yaml_text import block, flow, json_value
from rl_operator.file_discovery import discover_files
from rl_operator.local.own_environments import OwnEnvironments
from rl_operator.operator_errors import RefusedError
from rl_operator.status.text.sentences import cut
from rl_operator.targets.inputs.file_inputs import choose_runtime, known_environment
from rl_operator.targets.inputs.parameters import SettableField, fields_of, plain_run
from rl_operator.targets.target_loop import run_sync

USUAL: Final = ("total_steps", "group_size", "batch_size", "max_token_length", "learning_rate")
"""Fields that users commonly set: they are uncommented unless they are locked."""

RUN_FIELDS: Final = (
    "environment_replicas",
    "priority",
    "backoff_limit",
    "start_deadline_seconds",
    "progress_deadline_seconds",
    "active_deadline_seconds",
    "budget",
    "ttl_seconds_after_finished",
)
WIDTH: Final = 99

A_DAY: Final = 86_400
"""Placeholder for a number of seconds without a default."""

EXAMPLE_AMOUNT: Final = 10
"""Placeholder for the budget, in the currency of the runtime's prices."""

Accepts = Callable[[Mapping[str, Any]], bool]
"""Whether a run whose spec has just these fields besides environment and runtime is accepted."""


@dataclass(frozen=True)
class TemplateLine:
    """A setting of one section. `given`: it is active in the file as generated."""

    field: SettableField
    value: Any
    given: bool

    def written(self, width: int) -> str:
        setting = f"{'' if self.given else '#'}{self.setting}"
        limits = f"{self.field.allowed}: " if self.field.allowed else ""
        said = " ".join(f"{limits}{self.field.field.description}".split())
        margin = "  " * len(self.field.place)
        return cut(f"{margin}{setting:<{width}}  # {said}", WIDTH) if said else f"{margin}{setting}"

    @property
    def setting(self) -> str:
        return f"{self.field.place[-1]}: {flow(self.value)}"

    @property
    def mapping(self) -> tuple[str, ...]:
        """Where it stands: ("config",), or ("config", "taskset")."""
        return self.field.place[:-1]


def run_template(name: str, environment: CatalogEnvironment, runtime: Runtime, accepts: Accepts) -> str:
    fields = fields_of(environment, runtime)
    sections = {
        section: _lines([field for field in fields if field.section == section], accepts)
        for section in ("config", "trainer")
    }
    offered = {(line.field.section, line.field.name) for lines in sections.values() for line in lines}
    missing = [field for field in fields if not field.locked and (field.section, field.name) not in offered]
    return "\n".join(
        [
            *_prose(f"{environment.name}: {environment.description}"),
            *_prose(
                f"Made by `rlctl init` for runtime {runtime.metadata.name}. Lines that begin with #name: are settings "
                "with the value that is in force anyway: take the # away to change them."
            ),
            f"apiVersion: {API_VERSION}",
            f"kind: {RUN_KIND}",
            "metadata:",
            f"  name: {name}",
            "spec:",
            f"  environment: {flow(environment.name)}",
            f"  runtime: {flow(runtime.metadata.name)}",
            *_section("config", sections["config"]),
            *_section("trainer", sections["trainer"]),
            *_sandbox_line(environment, runtime, accepts),
            *_run_lines(runtime, accepts),
            *_others(fields, missing, runtime),
            "",
        ]
    )


def _lines(fields: Iterable[SettableField], accepts: Accepts) -> list[TemplateLine]:
    """The settings of one section that a run may set to these values; the commonly set ones come first.

    A mapping without an active line would be null: then its first setting is active, with its current value.
    """
    lines = [
        TemplateLine(field, value, given=field.name in USUAL or value != field.default)
        for field in sorted(fields, key=_place)
        if not field.locked and accepts(at_path(field.place, value := within(field.default, field.bound)))
    ]
    return [line for _, inside in groupby(lines, lambda line: line.mapping) for line in _with_an_active_one([*inside])]


def _with_an_active_one(lines: list[TemplateLine]) -> list[TemplateLine]:
    return lines if any(line.given for line in lines) else [replace(line, given=i == 0) for i, line in enumerate(lines)]


def _place(field: SettableField) -> tuple[tuple[str, ...], int]:
    """What is in a mapping of the section comes last, together."""
    return field.place[1:-1], USUAL.index(field.name) if field.name in USUAL else len(USUAL)


def within(value: object, bound: Bound | None) -> Any:
    """The nearest value that a runtime's bound allows; only numbers have bounds."""
    if bound is None or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if bound.min is not None and value < bound.min:
        return json_value(bound.min)
    return json_value(bound.max) if bound.max is not None and value > bound.max else value


def _section(name: str, lines: Sequence[TemplateLine]) -> Iterator[str]:
    if not lines:
        return
    width = min(40, max(len(f"#{line.setting}") for line in lines))
    yield f"  {name}:"
    for mapping, inside in groupby(lines, lambda line: line.mapping[1:]):
        yield from (f"    {outer}:" for outer in mapping)
        yield from (line.written(width) for line in inside)


def _run_lines(runtime: Runtime, accepts: Accepts) -> Iterator[str]:
    for name in RUN_FIELDS:
        if name == "priority" and runtime.spec.limits.max_priority == 0:
            continue  # runs are equal there
        field, value = RunSpec.model_fields[name], _example(name, runtime)
        if value is not None and accepts({str(field.alias): value}):
            yield cut(f"  {f'#{field.alias}: {flow(value)}':<42}  # {field.description}", WIDTH)
    yield f"  {'#wandb: {project: rl, tags: [first]}':<42}  # {RunSpec.model_fields['wandb'].description}"
    yield from _prose("startFrom: {run: NAME} begins with the weights of a run that is over.", indent=2)


def _example(name: str, runtime: Runtime) -> Any:
    """A value that a field of the run may have with this runtime. None: without prices a budget has none."""
    if name == "budget":
        prices = runtime.spec.backend.prices
        return {"amount": EXAMPLE_AMOUNT, "currency": prices.currency} if prices else None
    default, limit = RunSpec.model_fields[name].default, getattr(runtime.spec.limits, name, None)
    value = A_DAY if default is None else default
    return value if limit is None else min(value, limit)


def _sandbox_line(environment: CatalogEnvironment, runtime: Runtime, accepts: Accepts) -> Iterator[str]:
    bounds = runtime.spec.sandbox
    if bounds is None or TERMINAL_BACKEND not in environment.fields_by_name:
        return
    size = min(DEFAULT_SIZE, bounds.max_size)
    if accepts({"sandbox": {"size": size}}):
        yield cut(f"  {f'#sandbox: {{size: {size}}}':<42}  # {RunSpec.model_fields['sandbox'].description}", WIDTH)


def _others(fields: Sequence[SettableField], missing: Sequence[SettableField], runtime: Runtime) -> Iterator[str]:
    if missing:
        names = ", ".join(f"{field.section}.{field.name} ({field.type})" for field in missing)
        yield from _prose(f"May be set, too, and has no default that could stand here: {names}.")
    if locked := [field for field in fields if field.locked]:
        values = ", ".join(f"{field.section}.{field.name}={flow(field.default)}" for field in locked)
        yield from _prose(f"Not to be set, because runtime {runtime.metadata.name} locks it: {values}.")


def _prose(text: str, indent: int = 0) -> list[str]:
    margin = " " * indent + "# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=margin, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )


def object_name(text: str) -> str:
    """A Kubernetes name derived from a file's or an environment's: `my_env.py` becomes `my-env`."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower().removesuffix(".py")).strip("-")
    return name if name and name[0].isalpha() else f"run-{name}".rstrip("-")


def own_environment_template(name: str, files: Mapping[str, str], entry: str) -> str:
    """ConfigMap and RLEnvironment, each with the line that ends a document."""
    data = "".join(block(file, text, indent=2) for file, text in files.items())
    return (
        f"# The code: Python files, as they are.\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n"
        f"{data}---\n"
        f"# The environment: own/{name} in this namespace.\napiVersion: {API_VERSION}\nkind: {ENVIRONMENT_KIND}\n"
        f"metadata:\n  name: {name}\nspec:\n  source:\n    configMap: {{name: {name}, entry: {flow(entry)}}}\n---\n"
    )


@on_target
def init(
    environment: Annotated[str, typer.Argument(metavar="[ENV]", help="A bundled one, own/NAME, or ./file.py.")] = "",
    *,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE.py", help="Bring this file and what it imports as own/NAME.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the run; default: the environment's.")] = "",
    runtime: RuntimeName = "",
    scope: Scope,
) -> None:
    """Print a commented run file: rlctl init sort_digits > run.yaml

    rlctl init ./my_env.py --local writes a run of a file, for this machine; with --from ./my_env.py the file holds the
    ConfigMap, the RLEnvironment and the run, for a cluster and for this machine.
    """
    if bool(environment) == bool(source):
        raise RefusedError("give either an environment, like rlctl init sort_digits, or --from FILE.py")
    target = scope.target
    chosen = choose_runtime(target, runtime)
    run_name = name or object_name(source.name if source else environment.rpartition("/")[2])
    if source is not None:
        if not source.is_file():
            raise RefusedError(f"cannot read {source}: there is no such file")
        head, known = _own(source, run_name, chosen)
    else:
        head, known = "", known_environment(target, environment, chosen, scope.namespace)
    typer.echo(head + run_template(run_name, known, chosen, accepts_of(known, chosen)), nl=False)


def _own(source: Path, name: str, runtime: Runtime) -> tuple[str, CatalogEnvironment]:
    """The objects that ship the file, and the environment that they define. Raises RefusedError."""
    own = OwnEnvironments(lambda *_: None, discover_files)
    found = run_sync(own.of_file(source.absolute(), "default"))
    known = choose_environment(f"{OWN_PREFIX}{name}", runtime, None, found).known
    if known is None:
        stalled = found.status.condition("Stalled")
        raise RefusedError(stalled.message if stalled else f"{source} cannot be read")
    files = run_sync(own.files(found))
    return own_environment_template(name, files or {}, source.name), known


def accepts_of(environment: CatalogEnvironment, runtime: Runtime) -> Accepts:
    """Uses the check itself: whether these settings cause a refusal that a run without any would not get."""
    inputs = RunInputs(runtime, ChosenEnvironment(known=environment))
    plain = plain_run(environment.name, runtime.metadata.name).to_wire()

    def sentences(settings: Mapping[str, object]) -> set[str]:
        run = parse_run({**plain, "spec": {**plain["spec"], **settings}})
        return {refusal.sentence for refusal in check_run(run, inputs)}

    usual = sentences({})
    return lambda settings: sentences(settings) <= usual
