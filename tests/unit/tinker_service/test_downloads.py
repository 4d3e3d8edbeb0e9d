"""An adapter is exported as a PEFT folder: others compute with it exactly what the service samples from."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tinker
import torch
from safetensors.torch import load_file
from tests.unit.tinker_service.sdk_clients import WAIT, datum, new_model, train
from tinker import types
from transformers import AutoModelForCausalLM

from rl_contract.bundled import bundled_model_folder

TOKENS = [5, 6, 7, 8, 9, 10]


@pytest.fixture
def trained_adapter(client: tinker.ServiceClient) -> tinker.TrainingClient:
    """An adapter with non-zero weights everywhere, its unembedding included."""
    model = new_model(client)
    for _ in range(3):
        train(model, [datum(TOKENS[:-1], target_tokens=TOKENS[1:], weights=[1.0] * 5)])
    return model


def merged_logprobs(folder: Path) -> np.ndarray:
    """W + alpha / r B A for every adapted layer, in plain transformers."""
    model = AutoModelForCausalLM.from_pretrained(bundled_model_folder(), dtype=torch.float32)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())  # untied, as in README.md
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    with torch.no_grad():
        for name in {name.removeprefix("base_model.model.").rsplit(".lora_", 1)[0] for name in tensors}:
            a, b = (tensors[f"base_model.model.{name}.lora_{letter}.weight"] for letter in "AB")
            model.get_submodule(name).weight += config["lora_alpha"] / config["r"] * b @ a
        logits = model(torch.tensor([TOKENS])).logits[0, :-1]
    return logits.log_softmax(-1)[range(5), TOKENS[1:]].numpy()


def test_a_merged_export_computes_what_the_service_samples_from(
    trained_adapter: tinker.TrainingClient, rest: tinker.RestClient, tmp_path: Path
) -> None:
    path = trained_adapter.save_weights_external("export", ttl_seconds=3_600).result(WAIT).path
    signed = rest.get_external_weights_urls(path).result(WAIT)
    for name, url in signed.urls.items():
        with urllib.request.urlopen(url, timeout=WAIT) as answer:
            (tmp_path / name).write_bytes(answer.read())
    sampler = trained_adapter.save_weights_and_get_sampling_client().result(WAIT)
    expected = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result(WAIT)[1:]
    np.testing.assert_allclose(merged_logprobs(tmp_path), expected, atol=1e-5)

    (listed,) = rest.list_checkpoints(trained_adapter.model_id).result(WAIT).checkpoints
    assert (listed.checkpoint_type, listed.tinker_path) == ("external", path)
    rest.delete_checkpoint_from_tinker_path(path).result(WAIT)
    with pytest.raises(tinker.NotFoundError, match="there is no checkpoint"):
        rest.get_external_weights_urls(path).result(WAIT)


def test_the_sdks_own_command_downloads_a_state(
    trained_adapter: tinker.TrainingClient, tinker_service, rest: tinker.RestClient, tmp_path: Path
) -> None:
    path = trained_adapter.save_state("final").result(WAIT).path
    command = [str(Path(sys.executable).with_name("tinker")), "checkpoint", "download", path, "--output", str(tmp_path)]
    subprocess.run(command, env=tinker_service.env_vars, check=True, timeout=WAIT, capture_output=True)
    (folder,) = tmp_path.iterdir()
    assert {file.name for file in folder.iterdir()} == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    left = rest.list_user_checkpoints(limit=1_000).result(WAIT).checkpoints
    assert [item.tinker_path for item in left if item.checkpoint_type == "external"] == []


def test_an_address_is_valid_only_for_its_file(trained_adapter: tinker.TrainingClient, rest: tinker.RestClient) -> None:
    path = trained_adapter.save_weights_external("signed").result(WAIT).path
    urls = rest.get_external_weights_urls(path).result(WAIT).urls
    url = urls["README.md"]
    for wrong in (
        url.replace("README.md", "adapter_config.json"),
        url.replace("expires=", "expires=9"),
        url.partition("?")[0],
    ):
        with pytest.raises(urllib.error.HTTPError, match="403") as raised:
            urllib.request.urlopen(wrong, timeout=WAIT)
        assert b"get_external_weights_urls makes new ones" in raised.value.read()


def test_impossible_exports_are_named(trained_adapter: tinker.TrainingClient) -> None:
    with pytest.raises(tinker.APIStatusError, match="age_encryption_recipients is not supported"):
        trained_adapter.save_weights_external("secret", age_encryption_recipients=["age1"]).result(WAIT)
