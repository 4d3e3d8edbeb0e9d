"""The model in memory: its dtype, its names. What a GPU would run in bfloat16 is run here on the CPU."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rl_contract.bundled import bundled_model_folder
from tinker_service.model.adamw import AdamSettings
from tinker_service.model.engine import Engine
from tinker_service.model.lora import LoraSpec
from tinker_service.model.training import (
    ChosenLogprobs,
    LossOutput,
    Trainee,
    TrainingDatum,
    all_or_no_gradients,
    forward_backward,
    optim_step,
)
from tinker_service.service_errors import StartError

Prompts = list[tuple[int, ...]]
ADAM = AdamSettings(learning_rate=1e-3, beta1=0.9, beta2=0.95, eps=1e-8)


@pytest.fixture(scope="module")
def bf16_engine() -> Engine:
    return Engine("bundled", bundled_model_folder(), "cpu", "bfloat16")


def score(engine: Engine, trainee: Trainee, data: list[TrainingDatum], loss: str = "cross_entropy") -> LossOutput:
    return forward_backward(engine.model, trainee, data, loss_name=loss, loss_config={}, backward=True)


def test_a_small_model_computes_in_double_precision_unless_told_otherwise(engine: Engine, bf16_engine: Engine) -> None:
    assert (engine.dtype, bf16_engine.dtype) == ("float64", "bfloat16")
    assert engine.model.model.get_input_embeddings().weight.dtype == torch.float64
    assert bf16_engine.model.model.get_input_embeddings().weight.dtype == torch.bfloat16


def test_chosen_logprobs_and_their_gradients_match_log_softmax() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 7, dtype=torch.float64, generator=generator).requires_grad_()
    chosen = torch.tensor([[[1, 1, 6], [0, 2, 3], [5, 5, 5]]] * 2)  # a token may be requested twice
    weights = torch.randn(2, 3, 3, dtype=torch.float64, generator=generator)
    places = torch.tensor([[0, 1, 2], [0, 1, 3]])  # the first two rows are shared
    results = [ChosenLogprobs.apply(logits, places, chosen), logits.log_softmax(-1)[places].gather(-1, chosen)]
    gradients = [torch.autograd.grad(logprobs, logits, weights)[0] for logprobs in results]
    torch.testing.assert_close(*results, rtol=0, atol=1e-14)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-14)


def half_a_request(parameters: list[torch.Tensor]) -> None:
    with all_or_no_gradients(parameters):
        sum(parameters, torch.zeros(2)).sum().backward()
        raise torch.OutOfMemoryError


def test_a_request_that_fails_halfway_leaves_the_gradients_unchanged() -> None:
    fresh, accumulated = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    (3 * accumulated).sum().backward()
    with pytest.raises(torch.OutOfMemoryError):
        half_a_request([fresh, accumulated])
    assert fresh.grad is None
    assert accumulated.grad is not None
    assert accumulated.grad.tolist() == [3.0, 3.0]
    with all_or_no_gradients([fresh, accumulated]):
        (fresh + accumulated).sum().backward()
    assert accumulated.grad.tolist() == [4.0, 4.0]


def test_in_bfloat16_adapters_logits_and_logprobs_are_float32(bf16_engine: Engine) -> None:
    adapter = bf16_engine.model.new_adapter(LoraSpec(rank=4, seed=0))
    assert {tensor.dtype for tensor in adapter.parameters.values()} == {torch.float32}
    with bf16_engine.model.adapted(adapter) as model, torch.no_grad():
        output = model(torch.tensor([[5, 6, 7]]), output_hidden_states=True)
    assert output.hidden_states[-1].dtype == torch.bfloat16
    assert output.logits.dtype == torch.float32
    # float32 all the way, not widened bfloat16: its low bits are used.
    assert not torch.equal(output.logits, output.logits.bfloat16().float())


def test_rotary_frequencies_are_not_rounded(bf16_engine: Engine) -> None:
    """In bfloat16 they would turn the 500th position by up to a radian."""
    buffers = dict(bf16_engine.model.model.named_buffers())
    assert {buffer.dtype for buffer in buffers.values()} == {torch.float32}


def test_training_in_bfloat16_follows_double_precision(engine: Engine, bf16_engine: Engine, prompts: Prompts) -> None:
    """Ten small steps: updates that bfloat16 weights would round away still arrive."""
    data = [TrainingDatum(np.array(prompt[:-1]), {"target_tokens": np.array(prompt[1:])}) for prompt in prompts[:8]]
    losses = []
    for each in (engine, bf16_engine):
        trainee = Trainee(each.model.new_adapter(LoraSpec(rank=4, seed=0)))
        course = []
        for _ in range(10):
            course.append(score(each, trainee, data).metrics["loss:sum"])
            optim_step(trainee, ADAM)
        losses.append(course)
    exact, rounded = losses
    assert exact[-1] < 0.97 * exact[0]
    np.testing.assert_allclose(rounded, exact, rtol=0.02)


def test_the_model_is_known_by_its_name_and_its_folder(engine: Engine) -> None:
    assert engine.is_named("bundled")
    assert engine.is_named(str(engine.base.folder))
    assert not engine.is_named(engine.base.folder.name)


def test_a_missing_gpu_is_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(StartError, match="torch finds no GPU here; use --device cpu"):
        Engine("bundled", Path("/nowhere"), "cuda")
