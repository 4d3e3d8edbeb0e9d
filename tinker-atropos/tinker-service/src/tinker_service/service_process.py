"""The process `tinker-service`: checks options and key first, before the slow imports."""

import gc
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rl_contract.bundled import BUNDLED, bundled_model_folder
from rl_contract.env_vars import TINKER_API_KEY
from tinker_service.sdk.key_gate import KEY_PREFIX
from tinker_service.service_errors import StartError
from tinker_service.service_http import bind


@dataclass(frozen=True, slots=True)
class TinkerServiceOptions:
    """The command's options.

    `port` 0: the kernel's choice, written to `port_file`; `idle_exit` 0: never; `threads` None and `dtype` auto: depend
    on the model's size; `max_disk` and `memory` in GiB of 2**30 bytes, `max_disk` None: no limit.
    """

    model: str
    data: Path
    host: str
    port: int
    key_file: Path | None
    device: str
    dtype: str
    max_disk: float | None
    memory: float
    threads: int | None
    port_file: Path | None
    idle_exit: float


async def run_tinker_service(options: TinkerServiceOptions, env_vars: Mapping[str, str] = os.environ) -> None:
    """Serve until SIGTERM, SIGINT or `idle_exit`. Raises StartError if it cannot start."""
    key = read_key(options.key_file, env_vars)
    folder = model_folder(options.model)
    with bind(options.host, options.port) as listener:
        gc.disable()  # what libraries make stays: to look at it again and again takes a quarter of their import's time
        from tinker_service.service_server import serve_model

        gc.freeze()
        gc.enable()
        await serve_model(
            listener,
            key=key,
            name=options.model if options.model == BUNDLED else folder.name,
            folder=folder,
            data=options.data,
            device=options.device,
            dtype=options.dtype,
            max_disk_bytes=None if options.max_disk is None else int(options.max_disk * 2**30),
            sampling_bytes=int(options.memory * 2**30),
            threads=options.threads,
            port_file=options.port_file,
            idle_exit=options.idle_exit,
        )


def read_key(key_file: Path | None, env_vars: Mapping[str, str]) -> str:
    """The key that every request must carry. Raises StartError saying how to set one."""
    if key_file is not None:
        try:
            key, source = key_file.read_text(encoding="utf-8").strip(), f"--key-file {key_file}"
        except OSError as error:
            raise StartError(f"cannot read --key-file {key_file}: {error.strerror}") from None
    else:
        key, source = env_vars.get(TINKER_API_KEY, ""), TINKER_API_KEY
    if not key.startswith(KEY_PREFIX) or not key.isascii():
        fault = "does not start with it" if key else "is not set"
        raise StartError(
            f"the service needs a key that starts with {KEY_PREFIX!r}, and {source} {fault}; "
            f"set TINKER_API_KEY or pass --key-file, with any key you choose"
        )
    return key


def model_folder(model: str) -> Path:
    """The folder of `bundled`, or of a Hugging Face causal LM. Raises StartError if it does not contain one."""
    folder = bundled_model_folder() if model == BUNDLED else Path(model).resolve()
    if not (folder / "config.json").is_file():
        raise StartError(f"--model {model}: {folder} holds no config.json; give {BUNDLED!r} or a model folder")
    return folder
