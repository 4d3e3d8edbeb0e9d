"""`tinker-atropos sample` and `export` as processes, against the Tinker service with weights that were trained."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tinker
from safetensors.numpy import load_file
from tests import forking
from tests.conftest import TinkerServiceProcess

from tinker_atropos.weights.export_weights import how_to_use

PROGRAM = Path(sys.executable).with_name("tinker-atropos")
Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Trained:
    """The path of the weights of one optimizer step."""

    sampler_path: str
    state_path: str


@pytest.fixture(scope="module")
def stored_weights(tinker_service: TinkerServiceProcess) -> Trained:
    service = tinker.ServiceClient(base_url=tinker_service.url, api_key=tinker_service.key)
    client = service.create_lora_training_client("bundled", rank=4).result()
    prompt = tinker.ModelInput.from_ints([1, 5, 6])
    datum = tinker.Datum(model_input=prompt, loss_fn_inputs={"target_tokens": [5, 6, 7], "weights": [1.0, 1.0, 1.0]})
    client.forward_backward([datum], "cross_entropy").result()
    client.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
    sampler, state = client.save_weights_for_sampler("final").result(), client.save_state("final").result()
    service.close("success").result()
    return Trained(sampler.path, state.path)


@pytest.fixture
def weights_program(tinker_service: TinkerServiceProcess, tmp_path: Path) -> Run:
    def run(*arguments: str, stdin: str = "", **env_vars: str) -> subprocess.CompletedProcess[str]:
        everything = {**os.environ, **tinker_service.env_vars, **env_vars}
        return forking.run(arguments, everything, tmp_path, stdin=stdin)

    return run


def sampled(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ended.returncode == 0, ended.stderr
    wire: dict[str, Any] = json.loads(ended.stdout)
    return wire


def test_the_same_seed_gives_the_same_completions(weights_program: Run, stored_weights: Trained) -> None:
    asked = ("--model-path", stored_weights.sampler_path, "-n", "3", "--max-tokens", "8", "--seed", "0", "-o", "json")
    first = sampled(weights_program("sample", "sort 4 1 3 2", *asked))
    assert first == sampled(weights_program("sample", "-", *asked, stdin="sort 4 1 3 2\n"))
    assert (first["modelPath"], first["prompt"], len(first["completions"])) == (
        stored_weights.sampler_path,
        "sort 4 1 3 2",
        3,
    )
    for completion in first["completions"]:
        assert 1 <= completion["tokens"] <= 8
        assert completion["logprob"] < 0
        assert completion["stop_reason"] in ("stop", "length")


def test_a_state_checkpoint_answers_like_the_sampler_weights(weights_program: Run, stored_weights: Trained) -> None:
    greedy = ("sort 4 1 3 2", "--temperature", "0", "--max-tokens", "8")
    texts = [
        weights_program("sample", *greedy, "--model-path", path).stdout
        for path in (stored_weights.sampler_path, stored_weights.state_path)
    ]
    assert texts[0].strip()
    assert texts[0] == texts[1]


def test_the_base_model_answers_without_what_was_trained(weights_program: Run, stored_weights: Trained) -> None:
    asked = ("sample", "sort 4 1 3 2", "-n", "4", "--max-tokens", "8", "--seed", "0", "-o", "json")
    base = sampled(weights_program(*asked, "--base-model", "bundled"))
    assert (base["baseModel"], "modelPath" in base, len(base["completions"])) == ("bundled", False, 4)
    of_weights = sampled(weights_program(*asked, "--model-path", stored_weights.sampler_path))
    assert [each["logprob"] for each in base["completions"]] != [each["logprob"] for each in of_weights["completions"]]


def test_raw_omits_the_chat_template(weights_program: Run, stored_weights: Trained) -> None:
    asked = ("sample", "4 1 3 2", "--model-path", stored_weights.sampler_path, "--temperature", "0", "-o", "json")
    assert sampled(weights_program(*asked)) != sampled(weights_program(*asked, "--raw", "--tokenizer", "bundled"))


def test_an_export_is_a_peft_folder(weights_program: Run, stored_weights: Trained, tmp_path: Path) -> None:
    ended = weights_program("export", "--model-path", stored_weights.state_path, "--to", "adapter")
    assert ended.returncode == 0, ended.stderr
    assert " MB, a PEFT adapter of " in ended.stdout
    assert "--enable-lora --lora-modules adapter=adapter" in ended.stdout
    assert "it changes lm_head" in ended.stdout
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"]) == ("LORA", 4)
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert any(abs(tensor).max() > 0 for name, tensor in tensors.items() if "lora_B" in name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter"]


@pytest.mark.parametrize(
    ("rank", "modules", "said", "unsaid"),
    [
        (16, ["q_proj"], "serve M --enable-lora --lora-modules", "merge"),
        (17, ["q_proj"], "--enable-lora --max-lora-rank 32 --lora-modules", "merge"),
        (300, ["lm_head"], "--max-lora-rank 320", "--max-lora-rank 512"),
    ],
)
def test_the_instructions_fit_the_adapter(
    tmp_path: Path, rank: int, modules: list[str], said: str, unsaid: str
) -> None:
    config = {"base_model_name_or_path": "M", "r": rank, "target_modules": modules}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    told = how_to_use(tmp_path)
    assert said in told
    assert unsaid not in told
    assert ("untie them" in told) == ("lm_head" in modules)


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/weights")
def test_real_start_a_backends_refusal_is_reported_once(
    tinker_service: TinkerServiceProcess, stored_weights: Trained, tmp_path: Path
) -> None:
    """Really started: whether the tokenizer prints a warning is decided when its library is imported."""
    ended = subprocess.run(
        [PROGRAM, "sample", "1 " * 600, "--model-path", stored_weights.sampler_path],
        env={**os.environ, **tinker_service.env_vars},
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert "fit into the model's context: shorten it" in ended.stderr


def test_an_export_overwrites_nothing(weights_program: Run, stored_weights: Trained, tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "mine").touch()
    ended = weights_program("export", "--model-path", stored_weights.state_path, "--to", "adapter")
    assert (ended.returncode, ended.stderr) == (
        2, "error: --to adapter is there already; name a folder that does not exist or is empty\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "env_vars", "code", "said"),
    [
        (["sample", "x", "--model-path", "final"], {}, 2, "it must look like tinker://RUN/weights|sampler_weights/NAME"),
        (["export", "--model-path", "tinker://r/sampler_weights/f", "--to", "a"], {}, 2, "weights|external_weights"),
        (["sample", "x"], {}, 2, "name either trained weights with --model-path or a model with --base-model"),
        (["sample", "x", "--base-model", "bundled", "--model-path", "tinker://r/weights/f"], {}, 2, "name either "),
        (["sample", "x", "--base-model", "unheard-of"], {}, 2, "unheard-of"),
        (["sample", "x", "--model-path", "tinker://r/sampler_weights/f"], {}, 2, "tinker://r/sampler_weights/f"),
        (["export", "--model-path", "tinker://r/weights/f", "--to", "a"], {}, 2, "tinker://r/weights/f"),
        (["sample", "x", "--model-path", "tinker://r/weights/f"], {"TINKER_API_KEY": ""}, 3, "KEY is not set: export"),
        (["sample", "x", "--model-path", "tinker://r/weights/f"], {"TINKER_API_KEY": "tml-wrong"}, 3, "TINKER_API_KEY"),
    ],
)  # fmt: skip
def test_mistakes_are_reported(
    weights_program: Run, arguments: list[str], env_vars: dict[str, str], code: int, said: str
) -> None:
    ended = weights_program(*arguments, **env_vars)
    assert ended.returncode == code, ended
    assert ended.stderr.startswith("error: ")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
