"""The options that commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rl_operator.local.state.layout import STATE_DIR_VARIABLE


class Output(StrEnum):
    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


Local = Annotated[bool, typer.Option("--local", help="This machine instead of a cluster.")]
Context = Annotated[str, typer.Option("--context", help="Context of the kubeconfig; default: its current one.")]
StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", envvar=STATE_DIR_VARIABLE, help="Folder of the local target's state."),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace; default: the context's, else default.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Runs of every namespace.")]
Selector = Annotated[str, typer.Option("--selector", "-l", help="Labels, like team=a,stage!=test.")]
OutputFormat = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
RunName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a run.")]
RunPath = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file with one RLTrainingRun; - for stdin.")]
RuntimeName = Annotated[str, typer.Option("--runtime", help="RLRuntime; default: tiny with --local, else default.")]
