"""Optimizer steps through the real SDK and the real Tinker service, against torch.optim.AdamW."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tinker_atropos.bundled import BUNDLED
from tinker_atropos.trainer.backend.backend import Backend, StepOutput, Training
from tinker_atropos.trainer.backend.step_requests import AdamStep, LossCall
from tinker_atropos.trainer.data.datums import Datum

METADATA = {"run_uid": "step-requests-test", "attempt": "1", "step": "1"}
LOSS = LossCall("importance_sampling")


@pytest.fixture(autouse=True)
def _addressed(tinker_service, monkeypatch) -> None:
    for name, value in tinker_service.env_vars.items():
        monkeypatch.setenv(name, value)


def datum(token: int) -> Datum:
    ones = np.ones(3)
    return Datum(
        input_T=np.array([1, 2, 3]),
        target_T=np.array([2, 3, token]),
        logprobs_T=-ones,
        advantages_T=ones,
        trained_T=np.ones(3, bool),
        policy_step_T=np.zeros(3, np.int64),
        distilled_T=None,
        score=1.0,
        group=token,
        rollout=0,
    )


async def saved(training: Training, name: str, folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a state: weights by name, moments as `first.NAME` and `second.NAME`."""
    path = await training.save_state(name, METADATA, ttl_seconds=None)
    run, _, _ = path.removeprefix("tinker://").split("/")
    files = (folder / run / "weights" / name).glob("*.safetensors")
    return {key.removeprefix("base_model.model."): tensor for file in files for key, tensor in load_file(file).items()}


@pytest.mark.parametrize(("clip", "decay"), [(0.0, 0.0), (1e-3, 0.0), (0.0, 0.5), (1e-3, 0.5)])
async def test_clipping_and_decay_are_torchs(clip, decay, tinker_service) -> None:
    """The first moment after one step is a tenth of the clipped gradient: torch makes the same step of it."""
    folder = Path(tinker_service.log).parent / "data"
    backend = await Backend.open(30, METADATA)
    training = await backend.create(BUNDLED, 4, 0, METADATA)
    await training.step([[datum(5)]], LOSS, AdamStep(1e-2))  # then B is not zero, and A has a gradient too
    before = await saved(training, "before", folder)
    output = await training.step([[datum(6), datum(7)]], LOSS, AdamStep(1e-2, decay, clip))
    after = await saved(training, "after", folder)
    (answer,) = output.optimizer_metrics

    names = [name for name in before if name.startswith(("model.", "lm_head"))]
    gradients = {name: (after[f"first.{name}"] - 0.9 * before[f"first.{name}"]) / 0.1 for name in names}
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    assert norm == pytest.approx(clip or answer["grad_norm"], rel=1e-6)
    assert answer["grad_norm"] > clip

    parameters = {name: torch.tensor(before[name], requires_grad=True) for name in names}
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
    for name, parameter in parameters.items():
        moments = {"exp_avg": before[f"first.{name}"], "exp_avg_sq": before[f"second.{name}"]}
        tensors = {key: torch.tensor(moment) for key, moment in moments.items()}
        optimizer.state[parameter] = {"step": torch.tensor(1.0), **tensors}
        parameter.grad = torch.tensor(gradients[name])
    optimizer.step()
    for name, parameter in parameters.items():
        np.testing.assert_allclose(after[name], parameter.detach().numpy(), rtol=1e-6, atol=1e-12, err_msg=name)
    await backend.close("success")


async def test_two_optimizer_steps_of_a_batch_are_two_steps_with_one_snapshot(tinker_service) -> None:
    folder = Path(tinker_service.log).parent / "data"
    backend = await Backend.open(30, METADATA)

    async def trained(together: bool) -> tuple[list[StepOutput], dict[str, np.ndarray]]:
        training = await backend.create(BUNDLED, 4, 0, METADATA)
        minibatches = [[datum(5), datum(8)], [datum(6), datum(9)]]
        calls = [minibatches] if together else [[each] for each in minibatches]
        outputs = [await training.step(call, LOSS, AdamStep(1e-2)) for call in calls]
        return outputs, await saved(training, "stepped", folder)

    (output,), tensors = await trained(together=True)
    outputs, expected = await trained(together=False)
    assert {name: tensor.tobytes() for name, tensor in tensors.items()} == {
        name: tensor.tobytes() for name, tensor in expected.items()
    }
    apart = [row for each in outputs for row in each.logprobs]
    assert [row.tolist() for row in output.logprobs] == [row.tolist() for row in apart]
    assert output.loss_sum == pytest.approx(sum(each.loss_sum for each in outputs))
    assert [answer["optimizer_step"] for answer in output.optimizer_metrics] == [1, 2]
    assert set(output.seconds) == {"forward_backward", "optim_step", "snapshot"}
    sampled = [(await each.sampler.logprobs(np.array([1, 2, 3]))).tolist() for each in (output, outputs[-1])]
    assert sampled[0][1:] == sampled[1][1:]
    await backend.close("success")


LAYERS = {"train_attn": "self_attn", "train_mlp": "mlp", "train_unembed": "lm_head"}


@pytest.mark.parametrize("only", LAYERS)
async def test_an_adapter_is_on_the_layers_that_were_asked_for(only, tinker_service) -> None:
    """And its checkpoints know which: training continues on them, and the backend tells."""
    folder = Path(tinker_service.log).parent / "data"
    backend = await Backend.open(30, METADATA)
    training = await backend.create(BUNDLED, 4, 0, METADATA, {name: name == only for name in LAYERS})
    await training.step([[datum(5)]], LOSS, AdamStep(1e-2))
    path = await training.save_state("layers", METADATA, ttl_seconds=None)
    continued = await backend.load(path, METADATA, with_optimizer=True)
    output = await continued.step([[datum(5)]], LOSS, AdamStep(1e-2))
    assert output.optimizer_metrics[0]["optimizer_step"] == 2
    tensors = await saved(continued, "continued", folder)
    adapted = {name for name in LAYERS if any(LAYERS[name] in tensor for tensor in tensors)}
    assert adapted == {only}
    assert (await backend.stored.describe(path)).lora_layers == {name: name == only for name in LAYERS}
    await backend.close("success")
