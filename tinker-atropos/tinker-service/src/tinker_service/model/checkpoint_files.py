"""The files of one checkpoint: LoRA weights in PEFT's format, optimizer moments, and atomically created folders."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from tinker_service.model.adamw import AdamState
from tinker_service.model.lora import ALPHA, LoraAdapter, LoraSpec

ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG_FILE = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"
README_FILE = "README.md"
PEFT_FILES = (ADAPTER_FILE, ADAPTER_CONFIG_FILE, README_FILE)

_PEFT_PREFIX = "base_model.model."
_MOMENTS = ("first", "second")
_OLD_SUFFIX = ".old"


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The model that an adapter belongs to: the name that clients use, and the folder of its weights."""

    name: str
    folder: Path
    ties_embeddings: bool = False


def write_adapter(folder: Path, adapter: LoraAdapter, base: BaseModel, dtype: torch.dtype | None = None) -> None:
    """Weights and config in PEFT's LoRA format; `dtype` None: as they are trained."""
    tensors = {f"{_PEFT_PREFIX}{name}": tensor.to(dtype=dtype) for name, tensor in adapter.parameters.items()}
    _write_tensors(folder / ADAPTER_FILE, tensors)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base.folder),
        "r": adapter.spec.rank,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.rsplit(".", 1)[-1] for name in adapter.weights}),
    }
    (folder / ADAPTER_CONFIG_FILE).write_text(json.dumps(config, indent=1), encoding="utf-8")


def write_readme(folder: Path, adapter: LoraAdapter, base: BaseModel) -> None:
    """How to load the adapter, for anyone who finds the folder."""
    tied = (
        "\nThe base model ties its unembedding to its embedding and this adapter changes the unembedding: untie them\n"
        "before merging, or the merge changes the embedding too.\n"
        if base.ties_embeddings and adapter.spec.train_unembed
        else ""
    )
    (folder / README_FILE).write_text(_README.format(base=base, rank=adapter.spec.rank, tied=tied), encoding="utf-8")


def read_adapter(folder: Path, spec: LoraSpec, device: torch.device, *, trainable: bool) -> LoraAdapter:
    tensors = load_file(folder / ADAPTER_FILE, device=str(device))
    parameters = {name.removeprefix(_PEFT_PREFIX): tensor for name, tensor in tensors.items()}
    for parameter in parameters.values():
        parameter.requires_grad_(trainable)
    return LoraAdapter.from_parameters(spec, parameters)


def write_optimizer(folder: Path, state: AdamState, names: Sequence[str]) -> None:
    moments = zip(_MOMENTS, (state.first, state.second), strict=True)
    tensors = {
        f"{moment}.{name}": tensor for moment, values in moments for name, tensor in zip(names, values, strict=True)
    }
    _write_tensors(folder / OPTIMIZER_FILE, tensors)


def read_optimizer(folder: Path, names: Sequence[str], step: int, device: torch.device) -> AdamState:
    moments = load_file(folder / OPTIMIZER_FILE, device=str(device))
    first, second = ([moments[f"{moment}.{name}"] for name in names] for moment in _MOMENTS)
    return AdamState(first, second, step)


def new_hidden_folder(beside: Path) -> Path:
    """An empty folder with a name that no checkpoint has, on the same file system."""
    folder = beside.with_name(f".{beside.name}.{uuid.uuid4().hex}")
    folder.mkdir(parents=True)
    return folder


def move_into_place(temporary: Path, folder: Path) -> None:
    """Flush and rename. A kill in between leaves the previous folder for `recover` to restore."""
    for path in (*temporary.iterdir(), temporary):
        _sync(path)
    if folder.exists():
        old = folder.with_name(f"{temporary.name}{_OLD_SUFFIX}")
        folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old)
    else:
        temporary.rename(folder)
    _sync(folder.parent)


def remove(folder: Path) -> None:
    """Delete a folder: gone immediately for every reader, even if the process is killed in the meantime."""
    hidden = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)  # a sweep may be deleting it too


def recover(hidden: Path) -> None:
    """Remove what a killed process left half-written; restore what it was about to replace."""
    name = hidden.name.removeprefix(".").removesuffix(_OLD_SUFFIX).rpartition(".")[0]
    place = hidden.with_name(name)
    if hidden.name.endswith(_OLD_SUFFIX) and not place.exists():
        hidden.rename(place)
    else:
        shutil.rmtree(hidden, ignore_errors=True)  # a deletion may be removing it too


def replace_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_text(text, encoding="utf-8")
        _sync(temporary)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def bytes_of(tensors: Iterator[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    # Not save_file: its errors (a full disk) are not OSErrors.
    path.write_bytes(save({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_README = """\
# LoRA adapter for {base.name}, rank {rank}

Trained on the Tinker service; readable with PEFT:

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("{base.folder}")
model = PeftModel.from_pretrained(base, "path/of/this/folder")
```
{tied}"""
