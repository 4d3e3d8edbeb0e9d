"""The options that commands share."""

import functools
import inspect
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rl_operator.local.state.layout import STATE_DIR_VARIABLE
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.target import Target
from rl_operator.targets.target_choice import choose_target


class OutputKind(StrEnum):
    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


Local = Annotated[bool, typer.Option("--local", help="This machine instead of a cluster.")]
Kubeconfig = Annotated[str, typer.Option("--kubeconfig", help="The kubeconfig; default: KUBECONFIG, ~/.kube/config.")]
Context = Annotated[str, typer.Option("--context", help="Context of the kubeconfig; default: its current one.")]
StateDir = Annotated[
    Path | None, typer.Option("--state-dir", envvar=STATE_DIR_VARIABLE, help="Folder of the local target's state.")
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace; default: the context's, else default.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Runs of every namespace.")]
Selector = Annotated[str, typer.Option("--selector", "-l", help="Labels, like team=a,stage!=test.")]
Experiment = Annotated[str, typer.Option("--experiment", metavar="NAME", help="The runs of this experiment.")]
OutputFormat = Annotated[OutputKind, typer.Option("--output", "-o", help="How to print.")]
RunName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a run.")]
RunPath = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file with one RLTrainingRun; - for stdin.")]
ModelFolder = Annotated[
    Path | None,
    typer.Option("--model", metavar="DIR", help="With --local: train the Hugging Face model in this folder."),
]
RuntimeName = Annotated[str, typer.Option("--runtime", help="RLRuntime; default: tiny with --local, else default.")]


@dataclass(frozen=True)
class Scope:
    """Where a command acts. `asked_namespace` is empty if the caller named none."""

    target: Target
    asked_namespace: str

    @property
    def namespace(self) -> str:
        return self.asked_namespace or self.target.namespace


_SCOPE_OPTIONS = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for name, default, annotation in (
        ("local", False, Local), ("kubeconfig", "", Kubeconfig), ("context", "", Context),
        ("state_dir", None, StateDir), ("namespace", "", Namespace),
    )
)  # fmt: skip


def opened_target(*, local: bool, kubeconfig: str, context: str, state_dir: Path | None) -> Target:
    """What these options choose. Raises RefusedError if they contradict each other."""
    if local and (given := "--context" if context else "--kubeconfig" if kubeconfig else ""):
        raise RefusedError(f"{given} names a cluster and --local this machine: give one of them")
    if kubeconfig:
        os.environ["KUBECONFIG"] = kubeconfig  # the official client reads it, once, when it is imported
    target = choose_target(local=local, context=context, state_dir=state_dir)
    if kubeconfig:
        target.flags = f" --kubeconfig {shlex.quote(kubeconfig)}{target.flags}"
    return target


def on_target(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that choose a target, in place of its parameter `scope`.

    Typer reads a command's options from its signature, so this is the signature that it sees.
    """

    @functools.wraps(command)
    def call(
        *arguments: object, local: bool = False, kubeconfig: str = "", context: str = "", state_dir: Path | None = None,
        namespace: str = "", **options: object,
    ) -> None:  # fmt: skip
        if namespace and not re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", namespace):
            raise RefusedError(f"--namespace is {namespace!r}: a name has at most 63 of a-z, 0-9 and '-'")
        target = opened_target(local=local, kubeconfig=kubeconfig, context=context, state_dir=state_dir)
        target.flags += f" -n {namespace}" if namespace else ""
        command(*arguments, scope=Scope(target, namespace), **options)

    own = inspect.signature(command).parameters.values()
    shown = [each for one in own for each in (_SCOPE_OPTIONS if one.name == "scope" else (one,))]
    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # inspect looks for it
    call.__annotations__ = {each.name: each.annotation for each in shown}
    return call
