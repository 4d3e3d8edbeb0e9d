"""Folders of models as runtimes of this machine, and what is refused of them."""

import json
import struct
from pathlib import Path

import pytest

from rl_operator.documents.parse import parse_runtime
from rl_operator.local.model_runtimes import (
    PLACE,
    local_runtimes,
    memory_of_this_machine,
    model_of,
    model_runtime,
    read_model,
    require_room,
    require_same_model,
)
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import RefusedError

CONFIG = {"model_type": "qwen3", "max_position_embeddings": 640}
PARAMETERS = 3 * 5 + 7


def safetensors(*shapes: tuple[int, ...]) -> bytes:
    """A file's header, https://huggingface.co/docs/safetensors#format; nobody reads the tensors here."""
    tensors = {f"t{n}": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for n, shape in enumerate(shapes)}
    return header({"__metadata__": {"format": "pt", "shape": "any text"}, **tensors})


def header(tensors: object) -> bytes:
    content = json.dumps(tensors).encode()
    return struct.pack("<Q", len(content)) + content


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "Toy_Qwen3-0.1B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(safetensors((3, 5), (7,)))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(Layout(tmp_path / "state"))


def keep(store: StateStore, folder: Path) -> str:
    manifest = model_runtime(read_model(folder))
    store.apply({**manifest, "metadata": {**manifest["metadata"], "namespace": PLACE}})
    return str(manifest["metadata"]["name"])


def test_a_folder_is_a_runtime_with_its_model_and_its_context(model_folder: Path, store: StateStore) -> None:
    model = read_model(model_folder)
    assert (model.context, model.parameters) == (640, PARAMETERS)
    name = keep(store, model_folder)
    assert name.startswith("toy-qwen3-0-1b-")
    runtime = local_runtimes(store)[name]
    assert runtime.spec.locked.env["tokenizer_name"] == str(model_folder)
    assert runtime.spec.locked.openai["model_name"] == "Toy_Qwen3-0.1B"
    assert runtime.spec.defaults.trainer["max_token_trainer_length"] == 640
    assert "max_token_length" not in runtime.spec.defaults.env
    assert (model_of(store, name), model_of(store, "tiny"), model_of(store, "default")) == (
        str(model_folder),
        "bundled",
        None,
    )
    require_same_model(store, name)


def test_every_model_has_a_runtime_of_its_own(model_folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / model_folder.name
    elsewhere.parent.mkdir()
    model_folder.rename(elsewhere)
    first = read_model(elsewhere).runtime
    elsewhere.rename(model_folder)
    here = read_model(model_folder).runtime
    (model_folder / "model.safetensors").write_bytes(safetensors((3, 5), (8,)))
    assert len({first, here, read_model(model_folder).runtime}) == 3


def test_a_model_that_was_exchanged_or_is_gone_is_refused(model_folder: Path, store: StateStore) -> None:
    """A run that is resumed would train other weights under the name of the first."""
    name = keep(store, model_folder)
    (model_folder / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": 1280}))
    with pytest.raises(RefusedError, match=f"no longer the model of runtime '{name}'.*--model {model_folder}"):
        require_same_model(store, name)
    (model_folder / "config.json").unlink()
    with pytest.raises(RefusedError, match=r"holds no config\.json"):
        require_same_model(store, name)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", None, "it holds no config.json"),
        ("config.json", b"{", "its config.json cannot be read"),
        ("config.json", b"[" * 100_000, "its config.json cannot be read"),
        ("config.json", b"[]", "its config.json is not a mapping"),
        ("config.json", b"{}", "says no max_position_embeddings"),
        ("config.json", b'{"max_position_embeddings": true}', "says no max_position_embeddings"),
        ("tokenizer.json", None, "it holds no tokenizer (tokenizer.json, "),
        ("model.safetensors", None, "it holds no *.safetensors"),
        ("model.safetensors", header({"w": {}}), "is not a safetensors"),
        ("model.safetensors", header({"w": {"shape": 3}}), "is not a safetensors"),
        ("model.safetensors", b"version https://git-lfs", "is not a safetensors"),
    ],
)
def test_a_folder_without_a_model_is_refused(model_folder: Path, file: str, content: bytes | None, said: str) -> None:
    if content is None:
        (model_folder / file).unlink()
    else:
        (model_folder / file).write_bytes(content)
    with pytest.raises(RefusedError) as refused:
        read_model(model_folder)
    assert said in str(refused.value)
    assert str(model_folder) in str(refused.value)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=f"there is no folder {tmp_path}/none"):
        read_model(tmp_path / "none")


def test_a_model_that_is_larger_than_the_memory_is_refused(model_folder: Path) -> None:
    require_room(read_model(model_folder), 4 * PARAMETERS)
    with pytest.raises(RefusedError, match=f"its {PARAMETERS} parameters take .* take a smaller model"):
        require_room(read_model(model_folder), 4 * PARAMETERS - 1)
    assert memory_of_this_machine() > 2**28


def test_it_is_a_runtime_that_a_cluster_would_accept(model_folder: Path) -> None:
    assert parse_runtime(model_runtime(read_model(model_folder))).metadata.name


def test_the_callers_variables_name_the_teacher_of_every_runtime(model_folder: Path, store: StateStore) -> None:
    """The key and the address come from the same hand; a run and an environment name neither."""
    keep(store, model_folder)
    for caller, key in (
        ({}, None),
        ({"TEACHER_URL": "http://127.0.0.1:8100"}, False),
        ({"TEACHER_URL": "http://127.0.0.1:8100", "TEACHER_API_KEY": "k"}, True),
        ({"TEACHER_API_KEY": "k"}, None),
        ({"TEACHER_URL": "teacher:8100"}, None),
    ):
        for runtime in local_runtimes(store, caller).values():
            teacher = runtime.spec.teacher
            assert (teacher and (teacher.url, bool(teacher.key_secret))) == (
                None if key is None else ("http://127.0.0.1:8100", key)
            )
