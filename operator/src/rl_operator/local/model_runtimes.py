"""Models of one's own in local mode: a folder becomes a runtime of this machine, with a Tinker service of its own.

Such a runtime is `tiny` with another model. Its name says which: the folder's name, and a digest of where the folder is
and what model it holds. So runs of two models never share a service, and a run whose model was exchanged is refused.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from rl_contract.env_vars import TEACHER_API_KEY, TEACHER_URL
from rl_operator.api.kubernetes_objects import Manifest, ManifestMetadata
from rl_operator.api.names import GROUP, RUNTIME_KIND
from rl_operator.api.runtime import Runtime, RuntimeTeacher, SecretKey
from rl_operator.documents.parse import load_documents, parse_runtime
from rl_operator.documents.shipped import bundled_runtime_text, bundled_runtimes
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import RefusedError

TINY_RUNTIME: Final = "tiny"
"""Its model is the one that ships."""

BUNDLED: Final = "bundled"
MODEL_ANNOTATION: Final = f"{GROUP}/model-folder"
"""On a runtime of one's own model: the folder's absolute path."""

PLACE: Final = "default"
"""Runtimes belong to no namespace; the state folder has one for every object."""

TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
NUMBER_BYTES: Final = 4
"""Of a parameter in the Tinker service, on a CPU; small models take twice as much, and have room."""

END_BYTES: Final = 64 * 2**10
"""Of each file of weights, by which two models of one shape are told apart; reading all of them would take minutes."""

MAX_HEADER_BYTES: Final = 100 * 2**20
"""Safetensors' own limit: https://huggingface.co/docs/safetensors."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A Hugging Face causal language model on this machine. `context` is its longest sequence in tokens."""

    path: Path
    context: int
    parameters: int
    digest: str

    @property
    def runtime(self) -> str:
        slug = re.sub(r"[^a-z0-9]+", "-", self.path.name.lower()).strip("-")[:40].strip("-")
        return f"{slug or 'model'}-{self.digest}"


def read_model(given: Path) -> ModelFolder:
    """Read what a folder holds, without loading it. Raises RefusedError if it cannot be trained here."""
    path = given.expanduser().resolve()
    if not path.is_dir():
        raise RefusedError(f"--model is {str(given)!r}: there is no folder {path}; give that of a Hugging Face model")
    config = _config_of(path)
    if not any((path / name).is_file() for name in TOKENIZER_FILES):
        raise _refused(path, f"it holds no tokenizer ({', '.join(TOKENIZER_FILES)}): save one with save_pretrained()")
    text = config.get("text_config", config)
    context = text.get("max_position_embeddings") if isinstance(text, dict) else None
    if not isinstance(context, int) or isinstance(context, bool) or context < 1:
        raise _refused(path, "its config.json says no max_position_embeddings: only causal language models are trained")
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise _refused(path, "it holds no *.safetensors: save the weights in that format with save_pretrained()")
    digest = hashlib.sha256(f"{path}\n{json.dumps(config, sort_keys=True)}".encode())
    parameters = 0
    for file in weights:
        header, end = _ends_of(path, file)
        digest.update(json.dumps([file.name, file.stat().st_size, header]).encode() + end)
        parameters += sum(prod(tensor["shape"]) for tensor in header.values())
    return ModelFolder(path, context, parameters, digest.hexdigest()[:6])


def require_room(model: ModelFolder, memory_bytes: int) -> None:
    """Raises RefusedError if the weights alone are larger than this machine's memory."""
    needed = model.parameters * NUMBER_BYTES
    if needed > memory_bytes:
        raise _refused(
            model.path,
            f"its {model.parameters:,} parameters take {needed / 2**30:.1f} GiB, and this machine has "
            f"{memory_bytes / 2**30:.1f} GiB of memory: take a smaller model, or train on Tinker (runtime default)",
        )


def memory_of_this_machine() -> int:
    """In bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def model_runtime(model: ModelFolder) -> Manifest:
    """`tiny` with that model: sequences may be as long as the model's context, and answers as the environment says."""
    manifest = load_documents(bundled_runtime_text(TINY_RUNTIME))[0]
    spec, context = manifest["spec"], model.context
    spec["locked"]["env"]["tokenizer_name"] = str(model.path)
    spec["locked"]["openai"]["model_name"] = model.path.name  # the name that its service gives it
    del spec["defaults"]["env"]["max_token_length"]
    spec["defaults"]["trainer"]["max_token_trainer_length"] = context
    spec["bounds"] = {
        "env": {"max_token_length": {"max": context}},
        "trainer": {"max_token_trainer_length": {"max": context}},
    }
    metadata: ManifestMetadata = {"name": model.runtime, "annotations": {MODEL_ANNOTATION: str(model.path)}}
    return {**manifest, "metadata": metadata}


def local_runtimes(store: StateStore, caller: Mapping[str, str] = os.environ) -> dict[str, Runtime]:
    """The runtimes of this machine, by name: those that ship, and those of own models. Their teacher is the one that
    the caller's variables name: the key there goes to the address there, whoever wrote the run or the environment.
    """
    own = [parse_runtime(manifest) for manifest in store.list_all(RUNTIME_KIND, PLACE)]
    found = {**bundled_runtimes(), **{runtime.metadata.name: runtime for runtime in own}}
    teacher = _callers_teacher(caller)
    return {
        name: r.with_changes(spec=r.spec.with_changes(teacher=teacher)) if teacher else r for name, r in found.items()
    }


def _callers_teacher(caller: Mapping[str, str]) -> RuntimeTeacher | None:
    """None: they name none, or what is no URL."""
    url = caller.get(TEACHER_URL, "")
    if not url.startswith(("http://", "https://")):
        return None
    key = SecretKey(name="teacher", key=TEACHER_API_KEY) if caller.get(TEACHER_API_KEY) else None
    return RuntimeTeacher(url=url, key_secret=key, own_environments=True)


def model_of(store: StateStore, runtime: str) -> str | None:
    """The model that this machine serves to runs of a runtime: BUNDLED, or a folder. None: it is elsewhere."""
    if runtime == TINY_RUNTIME:
        return BUNDLED
    manifest = store.get(RUNTIME_KIND, PLACE, runtime)
    return manifest["metadata"]["annotations"][MODEL_ANNOTATION] if manifest else None


def require_same_model(store: StateStore, runtime: str) -> None:
    """Raises RefusedError if the folder of a runtime's model is gone, or holds another model by now."""
    folder = model_of(store, runtime)
    if folder is None or folder == BUNDLED:
        return
    now = read_model(Path(folder))
    require_room(now, memory_of_this_machine())
    if now.runtime != runtime:
        raise _refused(
            now.path,
            f"it is no longer the model of runtime {runtime!r}, which this run trains: put that model back, or start a "
            f"new run with --model {folder}",
        )


def _config_of(path: Path) -> dict[str, Any]:
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _refused(path, "it holds no config.json: it is not the folder of a Hugging Face model") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, f"its config.json cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise _refused(path, "its config.json is not a mapping")
    return config


def _ends_of(path: Path, file: Path) -> tuple[dict[str, Any], bytes]:
    """A safetensors file's tensors by name (8 bytes with the header's length, then JSON) and its last bytes."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if length <= MAX_HEADER_BYTES else None
            opened.seek(max(0, file.stat().st_size - END_BYTES))
            end = opened.read()
    except (OSError, ValueError, RecursionError):
        header, end = None, b""
    tensors = header if isinstance(header, dict) else {}
    tensors.pop("__metadata__", None)
    shapes = [tensor.get("shape") if isinstance(tensor, dict) else None for tensor in tensors.values()]
    known = all(isinstance(shape, list) and all(isinstance(size, int) for size in shape) for shape in shapes)
    if not tensors or not known:
        raise _refused(path, f"{file.name} is not a safetensors file (a Git LFS pointer, or cut short)")
    return tensors, end


def _refused(path: Path, why: str) -> RefusedError:
    return RefusedError(f"the model in {path} cannot be trained here: {why}")
