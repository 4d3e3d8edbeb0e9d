"""Export trained weights: a PEFT folder (adapter_model.safetensors, adapter_config.json) from a checkpoint."""

import asyncio
import contextlib
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import httpx

from tinker_atropos.errors import BackendError, ConfigError
from tinker_atropos.weights.backend_session import ask, kind_of, session

if TYPE_CHECKING:
    import tinker

EXPORT_TTL_SECONDS = 3_600
"""The backend deletes its temporary copy after this time if the export cannot."""

VLLM_RANKS = (16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's --max-lora-rank from its default up; an adapter of a higher rank is refused."""

DOWNLOAD_SECONDS = 60.0
"""Longest time without data while a file is fetched."""


async def export(model_path: str, to: Path) -> int:
    """Write the PEFT folder `to`, which must not exist or be empty; returns its size in bytes.

    A state checkpoint is copied at the backend first. Nothing is left behind when it fails. Raises RunErrors.
    """
    kind = kind_of(model_path, ("weights", "external_weights"))
    _check_free(to)
    async with session("export") as service:
        if kind == "external_weights":
            return await _download(model_path, to)
        copy = await _external_copy(service, model_path)
        try:
            return await _download(copy, to)
        finally:
            with contextlib.suppress(Exception):  # its TTL deletes it too
                await ask(f"deleting {copy}", lambda: _rest_client().delete_checkpoint_from_tinker_path(copy))


def how_to_use(adapter: Path) -> str:
    """What to pass to peft and vLLM for an exported folder, from its own config: a line each."""
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    base, rank = str(config.get("base_model_name_or_path") or "BASE_MODEL"), int(config.get("r", 0))
    allowed = next((allowed for allowed in VLLM_RANKS if rank <= allowed), rank)
    larger = f" --max-lora-rank {allowed}" if rank > VLLM_RANKS[0] else ""
    lines = [
        f"  peft   PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained({base!r}), {str(adapter)!r})",
        f"  vllm   vllm serve {quote(base)} --enable-lora{larger} --lora-modules {quote(f'{adapter.name}={adapter}')}",
    ]
    if "lm_head" in config.get("target_modules", ()):
        lines.append("  merge  it changes lm_head: where the base ties that to its embedding, untie them first")
    return "\n".join([f"a PEFT adapter of {base}, rank {rank}. To use it:", *lines])


def _check_free(to: Path) -> None:
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"--to {to} is there already; name a folder that does not exist or is empty")


async def _external_copy(service: "tinker.ServiceClient", state_path: str) -> str:
    training = await ask(f"opening {state_path}", lambda: service.create_training_client_from_state(state_path))
    name = f"export-{uuid.uuid4().hex[:8]}"
    saved = await ask(
        f"exporting {state_path}", lambda: training.save_weights_external(name, ttl_seconds=EXPORT_TTL_SECONDS)
    )
    return str(saved.path)


async def _download(external_path: str, to: Path) -> int:
    signed = await ask(
        f"asking for the files of {external_path}", lambda: _rest_client().get_external_weights_urls(external_path)
    )
    return await asyncio.to_thread(fetch_folder, signed.urls, to)


def fetch_folder(urls: Mapping[str, str], to: Path) -> int:
    """Fetch files by name into the folder `to`; returns their size in bytes.

    Raises BackendError for server errors, ConfigError for disk errors.
    """
    try:
        with _complete_or_not_at_all(to) as folder, httpx.Client(timeout=DOWNLOAD_SECONDS) as client:
            return sum(_fetch(client, url, _inside(folder, name)) for name, url in sorted(urls.items()))
    except httpx.HTTPError as error:
        raise BackendError(f"downloading the weights: {type(error).__name__}: {error}") from error
    except OSError as error:
        raise ConfigError(f"cannot write --to {to}: {error.strerror}") from error


@contextmanager
def _complete_or_not_at_all(to: Path) -> Iterator[Path]:
    """A temporary folder next to `to`, renamed to it at the end: `to` is complete as soon as it exists."""
    partial = to.with_name(f".{to.name}.{uuid.uuid4().hex[:8]}")
    try:
        partial.mkdir(parents=True)
        yield partial
        if to.exists():
            to.rmdir()
        partial.rename(to)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise BackendError(f"the backend names a file outside the folder: {name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _fetch(client: httpx.Client, url: str, path: Path) -> int:
    with path.open("wb") as file, client.stream("GET", url, follow_redirects=True) as response:
        response.raise_for_status()
        for chunk in response.iter_bytes():
            file.write(chunk)
        return file.tell()


def _rest_client() -> "tinker.RestClient":
    import tinker

    return tinker.RestClient()
