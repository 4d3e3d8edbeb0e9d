"""`tinker-service`: the program and its options."""

import asyncio
import logging
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from rl_contract.bundled import BUNDLED
from rl_contract.env_vars import RL_LOG_FORMAT
from rl_contract.logs import LogFormat, configure_logging, log_format_of
from rl_contract.processes import TINKER_SERVICE_PORT
from tinker_service.service_errors import StartError
from tinker_service.service_process import TinkerServiceOptions, run_tinker_service

logger = logging.getLogger(__name__)

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tinker-service {metadata.version('tinker-service')}")
        raise typer.Exit


@app.command()
def tinker_service(
    *,
    model: Annotated[str, typer.Option(help="bundled, or the folder of a Hugging Face causal LM.")] = BUNDLED,
    data: Annotated[Path, typer.Option(help="Folder of the checkpoints.")] = Path("./tinker"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: the kernel chooses.")] = TINKER_SERVICE_PORT,
    key_file: Annotated[
        Path | None, typer.Option(help="File with the key (tml-…) that clients must send; default: TINKER_API_KEY.")
    ] = None,
    max_disk: Annotated[
        float | None, typer.Option(min=0, help="GiB that all checkpoints may hold; default: no limit.")
    ] = None,
    memory: Annotated[
        float, typer.Option(min=0.001, help="GiB that the cache and logits of sampling may take beside the model.")
    ] = 1,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the model runs.")] = "cpu",
    dtype: Annotated[
        Literal["auto", "float64", "float32", "bfloat16"],
        typer.Option(help="auto: float64 for a small model, else bfloat16 on cuda and float32 on cpu."),
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of the model; default: 1 for a small one, else all cores.")
    ] = None,
    port_file: Annotated[Path | None, typer.Option(help="File to write the port to, once requests are served.")] = None,
    idle_exit: Annotated[float, typer.Option(min=0, help="End after so many seconds without a request; 0: never.")] = 0,
    log_format: Annotated[
        LogFormat, typer.Option(envvar=RL_LOG_FORMAT, help="text, or json: one object a line.")
    ] = "text",
    version: Annotated[  # noqa: ARG001 -- its callback answers
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Serve the Tinker API from this machine: sampling and LoRA training of a small model."""
    configure_logging(log_format)
    options = TinkerServiceOptions(
        model=model,
        data=data,
        host=host,
        port=port,
        key_file=key_file,
        device=device,
        dtype=dtype,
        max_disk=max_disk,
        memory=memory,
        threads=threads,
        port_file=port_file,
        idle_exit=idle_exit,
    )
    asyncio.run(run_tinker_service(options))


def main() -> None:
    """The program: a StartError becomes one line on stderr and its exit code."""
    try:
        app()
    except StartError as error:
        if log_format_of() == "json":
            logger.error("%s", error)  # noqa: TRY400 -- the message is enough
        else:
            typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
