"""Checkpoints on disk: whole or absent, addressed by checked paths, deleted when they expire."""

import dataclasses
import json
import resource
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.small_disks import filled, mounted

from tinker_service.checkpoint_store import (
    RECORD_FILE,
    CheckpointRecord,
    CheckpointStore,
    Location,
    TrainingRunRecord,
)
from tinker_service.model.adamw import AdamState
from tinker_service.model.checkpoint_files import ADAPTER_CONFIG_FILE, ADAPTER_FILE, BaseModel, replace_text
from tinker_service.model.lora import LoraAdapter, LoraSpec
from tinker_service.model.training import Trainee
from tinker_service.service_errors import MissingError, RequestError

CPU = torch.device("cpu")
STATE = Location("s:train:0", "weights", "step-1")
BASE = BaseModel("bundled", Path("/models/bundled"), ties_embeddings=True)


@pytest.fixture
def checkpoint_store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path)


def trainee() -> Trainee:
    weights = {name: (torch.randn(2, 4), torch.randn(3, 2)) for name in ("model.b.mlp", "model.a.q_proj")}
    adapter = LoraAdapter(LoraSpec(rank=2, seed=3, train_unembed=False), weights)
    state = AdamState.zeros(list(adapter.parameters.values()))
    for index, tensor in enumerate((*state.first, *state.second)):
        tensor.fill_(index)
    return Trainee(adapter, dataclasses.replace(state, step=7))


def save(store: CheckpointStore, saved: Trainee, location: Location = STATE, **options: object) -> None:
    store.save(location, saved, BASE, **options)


def test_a_saved_state_is_loaded_bit_for_bit(checkpoint_store: CheckpointStore) -> None:
    saved = trainee()
    save(checkpoint_store, saved)
    loaded = checkpoint_store.load(STATE.path, CPU, with_optimizer=True, trainable=True)
    assert loaded.adapter.parameters.keys() == saved.adapter.parameters.keys()
    for name, tensor in saved.adapter.parameters.items():
        assert torch.equal(loaded.adapter.parameters[name], tensor)
        assert loaded.adapter.parameters[name].requires_grad
    assert loaded.adapter.spec == dataclasses.replace(saved.adapter.spec, seed=None)
    assert saved.optimizer is not None
    assert loaded.optimizer is not None
    assert loaded.optimizer.step == 7
    for mine, other in zip(saved.optimizer.second, loaded.optimizer.second, strict=True):
        assert torch.equal(mine, other)


def test_the_optimizer_is_omitted_on_request(checkpoint_store: CheckpointStore) -> None:
    save(checkpoint_store, trainee())
    assert checkpoint_store.load(STATE.path, CPU, with_optimizer=False, trainable=True).optimizer is None
    sampler = Location("s:train:0", "sampler_weights", "w")
    save(checkpoint_store, trainee(), sampler)
    loaded = checkpoint_store.load(sampler.path, CPU, with_optimizer=True, trainable=False)
    assert loaded.optimizer is None
    assert not any(tensor.requires_grad for tensor in loaded.adapter.parameters.values())


def test_the_folder_is_a_peft_adapter(checkpoint_store: CheckpointStore, tmp_path: Path) -> None:
    save(checkpoint_store, trainee())
    config = json.loads((tmp_path / "s:train:0/weights/step-1" / ADAPTER_CONFIG_FILE).read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (2, 32.0, ["mlp", "q_proj"])


def test_external_weights_are_float32_and_say_how_to_load_them(
    checkpoint_store: CheckpointStore, tmp_path: Path
) -> None:
    saved = trainee()
    saved.adapter.weights["lm_head"] = (torch.randn(2, 4, dtype=torch.float64), torch.randn(9, 2, dtype=torch.float64))
    external = Location("s:train:0", "external_weights", "out")
    save(checkpoint_store, Trainee(dataclasses.replace(saved.adapter, spec=LoraSpec(rank=2))), external)
    tensors = load_file(tmp_path / "s:train:0/external_weights/out" / ADAPTER_FILE)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert "base_model.model.lm_head.lora_A.weight" in tensors
    readme = checkpoint_store.peft_files(external)["README.md"].read_text()
    assert 'from_pretrained("/models/bundled")' in readme
    assert "untie them" in readme


def test_an_expired_checkpoint_is_gone(checkpoint_store: CheckpointStore, tmp_path: Path) -> None:
    save(checkpoint_store, trainee(), ttl_seconds=3_600)
    assert len(checkpoint_store.checkpoints("s:train:0")) == 1
    path = tmp_path / "s:train:0/weights/step-1" / RECORD_FILE
    record = CheckpointRecord.model_validate_json(path.read_text())
    expired = record.model_copy(update={"expires_at": datetime.now(UTC) - timedelta(seconds=1)})
    path.write_text(expired.model_dump_json())
    with pytest.raises(MissingError, match="expired at"):
        checkpoint_store.load(STATE.path, CPU, with_optimizer=True, trainable=True)
    assert checkpoint_store.checkpoints("s:train:0") == []
    checkpoint_store.sweep()
    assert not path.parent.exists()


def test_a_failed_save_leaves_nothing_that_looks_like_a_checkpoint(
    checkpoint_store: CheckpointStore, tmp_path: Path
) -> None:
    save(checkpoint_store, trainee())
    before = checkpoint_store.record(STATE)
    with pytest.raises(RequestError, match="overwrite=True"):
        save(checkpoint_store, trainee())
    broken = trainee()
    broken.adapter.weights["model.b.mlp"] = (torch.randn(2, 4).to_sparse(), torch.randn(3, 2))
    with pytest.raises(RuntimeError, match="unsupported memory format"):
        save(checkpoint_store, broken, overwrite=True)
    assert checkpoint_store.record(STATE) == before
    assert [path.name for path in (tmp_path / "s:train:0/weights").iterdir()] == ["step-1"]


@pytest.mark.parametrize("killed_before_new_one_stood", [True, False])
def test_a_kill_while_overwriting_leaves_the_old_or_the_new_one(
    checkpoint_store: CheckpointStore, tmp_path: Path, killed_before_new_one_stood: bool
) -> None:
    """What is on disk if the process dies between the two renames, or after them."""
    save(checkpoint_store, trainee())
    folder = tmp_path / "s:train:0/weights/step-1"
    if killed_before_new_one_stood:
        shutil.copytree(folder, folder.with_name(".step-1.0123abcd"))
        folder.rename(folder.with_name(".step-1.0123abcd.old"))
    else:
        shutil.copytree(folder, folder.with_name(".step-1.0123abcd.old"))
    checkpoint_store.sweep()
    assert [path.name for path in folder.parent.iterdir()] == ["step-1"]
    assert checkpoint_store.load(STATE.path, CPU, with_optimizer=True, trainable=True).optimizer is not None


def test_a_damaged_checkpoint_is_named_and_affects_no_others(checkpoint_store: CheckpointStore, tmp_path: Path) -> None:
    save(checkpoint_store, trainee())
    good = Location("s:train:0", "weights", "good")
    save(checkpoint_store, trainee(), good)
    (tmp_path / "s:train:0/weights/step-1" / RECORD_FILE).write_text("{")
    checkpoint_store.sweep()
    assert [record.tinker_path for record in checkpoint_store.checkpoints("s:train:0")] == [good.path]
    with pytest.raises(MissingError, match=r"is damaged: its checkpoint\.json cannot be read; delete it"):
        checkpoint_store.record(STATE)


def test_the_disk_quota_counts_everything_and_says_what_to_do(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, max_bytes=20_000)
    for number in range(20):
        try:
            save(store, trainee(), Location("s:train:0", "weights", f"step-{number}"), ttl_seconds=3_600)
        except RequestError as error:
            message, status = str(error), error.status
            break
    assert status == 507
    assert "step-" in message
    assert "that --max-disk allows: delete checkpoints, or save them with ttl_seconds" in message
    assert number > 1
    assert store.total_bytes() <= 20_000
    store.delete(Location("s:train:0", "weights", "step-0"))
    save(store, trainee(), STATE, overwrite=True)


@pytest.mark.process
@pytest.mark.parametrize("what", ["a checkpoint", "another one in its place", "a new training run"])
def test_a_full_disk_is_waited_for_and_told_and_nothing_is_left_behind(tmp_path: Path, what: str) -> None:
    record = TrainingRunRecord(training_run_id="s:train:1", base_model="b", lora_rank=2, created_at=datetime.now(UTC))
    with mounted(tmp_path / "disk", "1m") as disk, ThreadPoolExecutor(1) as thread:
        store = CheckpointStore(disk)
        if what == "another one in its place":
            save(store, trainee())
        with filled(disk):
            if what == "a new training run":
                waiting = thread.submit(store.add_run, record)
            else:
                waiting = thread.submit(save, store, trainee(), overwrite=True)
            give_up = time.monotonic() + 60
            while store.no_space is None:
                assert time.monotonic() < give_up, "nothing waits for room after 60 s"
            assert not waiting.done()
            assert "(0 of 1 MB free): make some" in store.no_space
        waiting.result(60)
        assert store.no_space is None
        assert [path for path in disk.rglob("*") if path.name.startswith(".")] == []
        found = store.runs() == [record] if what == "a new training run" else store.record(STATE).optimizer_step == 7
        assert found


@pytest.mark.process
def test_a_text_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "64k") as disk:
        (disk / "text").write_text("before")
        with filled(disk), pytest.raises(OSError, match="No space left"):
            replace_text(disk / "text", "after" * 1000)
        assert {path.name: path.read_text() for path in disk.iterdir()} == {"text": "before"}


def test_another_error_of_the_disk_is_reported_and_leaves_nothing_behind(
    checkpoint_store: CheckpointStore, tmp_path: Path
) -> None:
    """RLIMIT_FSIZE makes write() fail as a damaged disk does."""
    save(checkpoint_store, trainee())
    before = checkpoint_store.record(STATE)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(RequestError, match=r"was not saved: .*: save again") as raised:
            save(checkpoint_store, trainee(), overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.status == 507
    assert checkpoint_store.record(STATE) == before
    assert [path.name for path in (tmp_path / "s:train:0/weights").iterdir()] == ["step-1"]


@pytest.mark.parametrize(
    "path",
    [
        "step-1",
        "tinker://run/weights",
        "tinker://run/other/name",
        "tinker://run/weights/a/b",
        "tinker://../weights/name",
        "tinker://run/weights/..",
        "tinker://run/weights/.hidden",
        "tinker://run/weights/",
        "tinker://run/weights/name\n",
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(RequestError, match="is not a checkpoint path"):
        Location.parse(path)
