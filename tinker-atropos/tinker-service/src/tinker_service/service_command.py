"""`tinker-service`: the program and its options."""

import asyncio
import gc
import logging
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from rl_contract.bundled import BUNDLED, bundled_model_folder
from rl_contract.env_vars import RL_LOG_FORMAT, TINKER_API_KEY
from rl_contract.logs import LogFormat, configure_logging, log_format_of
from rl_contract.processes import TINKER_SERVICE_PORT
from tinker_service.sdk.key_gate import KEY_PREFIX
from tinker_service.service_errors import StartError
from tinker_service.service_http import bind

GIB = 2**30

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
    key, folder = _read_key(key_file), _model_folder(model)  # before the slow imports
    with bind(host, port) as listener:
        gc.disable()  # what libraries make stays: to look at it again and again takes a quarter of their import's time
        from tinker_service.service_server import serve_model

        gc.freeze()
        gc.enable()
        serving = serve_model(
            listener,
            key=key,
            name=model if model == BUNDLED else folder.name,
            folder=folder,
            data=data,
            device=device,
            dtype=dtype,
            max_disk_bytes=None if max_disk is None else int(max_disk * GIB),
            sampling_bytes=int(memory * GIB),
            threads=threads,
            port_file=port_file,
            idle_exit=idle_exit,
        )
        asyncio.run(serving)


def _read_key(key_file: Path | None) -> str:
    """The key that every request must carry. Raises StartError saying how to set one."""
    if key_file is not None:
        try:
            key, source = key_file.read_text(encoding="utf-8").strip(), f"--key-file {key_file}"
        except OSError as error:
            raise StartError(f"cannot read --key-file {key_file}: {error.strerror}") from None
    else:
        key, source = os.environ.get(TINKER_API_KEY, ""), TINKER_API_KEY
    if not key.startswith(KEY_PREFIX) or not key.isascii():
        fault = "does not start with it" if key else "is not set"
        raise StartError(
            f"the service needs a key that starts with {KEY_PREFIX!r}, and {source} {fault}; "
            f"set TINKER_API_KEY or pass --key-file, with any key you choose"
        )
    return key


def _model_folder(model: str) -> Path:
    """The folder of `bundled`, or of a Hugging Face causal LM. Raises StartError if it does not contain one."""
    folder = bundled_model_folder() if model == BUNDLED else Path(model).resolve()
    if not (folder / "config.json").is_file():
        raise StartError(f"--model {model}: {folder} holds no config.json; give {BUNDLED!r} or a model folder")
    return folder


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
