"""Optimizer steps through the real SDK and the real Tinker service, against torch.optim.AdamW."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.unit.tinker_atropos.trainer.backend.conftest import METADATA
from tests.unit.tinker_atropos.trainer.backend.made_datums import datum, taught

from tinker_atropos.errors import ConfigError
from tinker_atropos.trainer.backend.answers import Patience
from tinker_atropos.trainer.backend.checkpoints import StoredCheckpoints
from tinker_atropos.trainer.backend.lora_weights import StepOutput, Training
from tinker_atropos.trainer.data.datums import Datum, trained_tokens
from tinker_atropos.trainer.update.policy_update import teacher_metrics


@pytest.fixture
def folder(tinker_service) -> Path:
    """Where the service keeps its checkpoints."""
    return Path(tinker_service.log).parent / "data"


async def saved(training: Training, name: str, folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a state: weights by name, moments as `first.NAME` and `second.NAME`."""
    path = await training.save_state(name, METADATA, ttl_seconds=None)
    run, _, _ = path.removeprefix("tinker://").split("/")
    files = (folder / run / "weights" / name).glob("*.safetensors")
    return {key.removeprefix("base_model.model."): tensor for file in files for key, tensor in load_file(file).items()}


@pytest.mark.parametrize(
    ("clip", "decay", "scale"),
    [(0.0, 0.0, "sum"), (1e-3, 0.0, "sum"), (0.0, 0.5, "mean"), (1e-3, 0.5, "sum"), (1e-3, 0.5, "mean")],
)
async def test_clipping_and_decay_are_torchs(clip, decay, scale, folder, new_training) -> None:
    """The first moment after one step is a tenth of the clipped gradient: torch makes the same step of it."""
    training = await new_training(weight_decay=decay, grad_clip_norm=clip, grad_clip_scale=scale)
    tokens = trained_tokens([datum(6), datum(7)])
    clip *= tokens if scale == "mean" else 1
    await training.step([[datum(5)]], 1e-2)  # then B is not zero, and A has a gradient too
    before = await saved(training, "before", folder)
    output = await training.step([[datum(6), datum(7)]], 1e-2)
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


async def test_two_optimizer_steps_of_a_batch_are_two_steps_with_one_snapshot(folder, new_training) -> None:
    async def trained(together: bool) -> tuple[list[StepOutput], dict[str, np.ndarray]]:
        training = await new_training()
        minibatches = [[datum(5), datum(8)], [datum(6), datum(9)]]
        calls = [minibatches] if together else [[each] for each in minibatches]
        outputs = [await training.step(call, 1e-2) for call in calls]
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


async def all_logprobs(training: Training, vocabulary: int = 512) -> np.ndarray:
    """Of every token after [1], [1, 2] and [1, 2, 3], by forward passes over one target each."""
    row = np.array([1, 2, 3])
    datums = [replace(datum(5), input_T=row, target_T=np.full(3, token)) for token in range(vocabulary)]
    return np.stack(await training.forward(datums), axis=-1)


async def test_the_loss_and_the_gradient_are_those_of_the_forward_kl_in_numpy(new_training) -> None:
    """The loss by numpy, from the logprobs of the whole vocabulary, and a step goes down. The gradient is below."""
    training = await new_training(distill_coefficient=3.0)
    example = taught()
    tokens_TK, shares_TK = example.teacher.tokens_TK, example.teacher.shares_TK
    named_TK = shares_TK > 0
    entropy = -(shares_TK[named_TK] * np.log(shares_TK[named_TK])).sum()

    def cross_entropy(logprobs_TV: np.ndarray) -> float:
        assert np.exp(logprobs_TV).sum(axis=-1) == pytest.approx(1.0, abs=1e-5)
        return float(-(shares_TK * np.take_along_axis(logprobs_TV, tokens_TK, axis=-1)).sum())

    before = await all_logprobs(training)
    output = await training.step([[example]], 1e-4)
    assert output.loss_sum == pytest.approx(3.0 * cross_entropy(before), rel=1e-5)
    np.testing.assert_allclose(
        output.teacher_logprobs[0], np.take_along_axis(before, tokens_TK, axis=-1), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(output.logprobs[0], before[range(3), example.target_T], rtol=1e-4, atol=1e-5)
    metrics = teacher_metrics([example], output.teacher_logprobs)
    assert metrics["distil/forward_kl"] == pytest.approx((cross_entropy(before) - entropy) / 2, rel=1e-5)
    after = await all_logprobs(training)
    assert cross_entropy(after) < cross_entropy(before)


async def first_moments(training: Training, folder: Path, minibatch: list[Datum]) -> dict[str, np.ndarray]:
    """A tenth of the gradient of a first step, from the same weights each time."""
    await training.step([[datum(5)]], 1e-2)  # then B is not zero, and A has a gradient too
    before = await saved(training, "before", folder)
    await training.step([minibatch], 1e-2)
    after = await saved(training, "after", folder)
    return {name: after[name] - 0.9 * before[name] for name in after if name.startswith("first.")}


async def test_a_teachers_gradient_is_a_weighted_sum_over_its_tokens_and_adds_to_the_policys(
    folder, new_training
) -> None:
    """On fresh tokens the policy's gradient is -A times that of log p: with A the teacher's weight, and each of its
    tokens as if sampled, it is the same.
    """
    example, weight = taught(), 2.0
    training = await new_training()
    await training.step([[datum(5)]], 1e-2)
    sampled = []
    for tokens_T, shares_T in zip(example.teacher.tokens_TK.T, example.teacher.shares_TK.T, strict=True):
        (fresh_T,) = await training.forward([replace(example, target_T=tokens_T)])
        sampled.append(
            replace(example, target_T=tokens_T, logprobs_T=fresh_T, advantages_T=weight * shares_T, teacher=None)
        )
    expected = await first_moments(await new_training(), folder, sampled)
    found = await first_moments(await new_training(distill_coefficient=weight), folder, [example])
    assert max(np.abs(moment).max() for moment in expected.values()) > 1e-4
    for name, moment in expected.items():
        np.testing.assert_allclose(found[name], moment, rtol=1e-3, atol=1e-7, err_msg=name)

    both = [taught(7, advantage=1.0), datum(6)]
    policy = await first_moments(await new_training(), folder, [replace(both[0], teacher=None), both[1]])
    teacher = await first_moments(await new_training(), folder, [taught(7)])
    together = await first_moments(await new_training(), folder, both)
    for name, moment in together.items():
        np.testing.assert_allclose(moment, policy[name] + teacher[name], rtol=1e-3, atol=1e-7, err_msg=name)


async def test_a_replayed_step_with_a_teacher_gives_the_same_bytes(folder, backend, bundled_training) -> None:
    await bundled_training.step([[datum(5)]], 1e-2)
    path = await bundled_training.save_state("replayed", METADATA, ttl_seconds=None)
    minibatches = [[taught(5, advantage=1.0), datum(8)], [taught(6)]]
    found = []
    for attempt in range(2):
        again = await backend.load(path, METADATA, with_optimizer=True)
        output = await again.step(minibatches, 1e-2)
        tensors = await saved(again, f"replayed-{attempt}", folder)
        found.append((output.loss_sum, {name: tensor.tobytes() for name, tensor in tensors.items()}))
    assert found[0] == found[1]


async def test_without_advantages_only_the_teachers_loss_is_computed_and_charged_for(new_training) -> None:
    training, dro = await new_training(), await new_training(loss="dro")
    output = await training.step([[taught()]], 1e-4)
    assert training.used.train == 3
    assert [len(row) for row in output.logprobs] == [3]
    await training.step([[taught(), datum(6)]], 1e-4)
    assert training.used.train == 3 + 2 * 3 + 3
    await dro.step([[taught()]], 1e-4)  # it pulls back to the sampler, whatever the advantages
    assert dro.used.train == 2 * 3


async def test_a_backend_that_refuses_what_a_teacher_named_ends_the_run_and_says_what_to_do(bundled_training) -> None:
    unknown = taught()
    unknown.teacher.tokens_TK[2, 2] = 100_000
    with pytest.raises(ConfigError, match=r"several targets per token: .*100000.* \(env.teacher_top_k: 1\)"):
        await bundled_training.step([[unknown]], 1e-4)


LAYERS = {"train_attn": "self_attn", "train_mlp": "mlp", "train_unembed": "lm_head"}


@pytest.mark.parametrize("only", LAYERS)
async def test_an_adapter_is_on_the_layers_that_were_asked_for(only, folder, backend, new_training) -> None:
    """And its checkpoints know which: training continues on them, and the backend tells."""
    training = await new_training(**{name: name == only for name in LAYERS})
    await training.step([[datum(5)]], 1e-2)
    path = await training.save_state("layers", METADATA, ttl_seconds=None)
    continued = await backend.load(path, METADATA, with_optimizer=True)
    output = await continued.step([[datum(5)]], 1e-2)
    assert output.optimizer_metrics[0]["optimizer_step"] == 2
    tensors = await saved(continued, "continued", folder)
    adapted = {name for name in LAYERS if any(LAYERS[name] in tensor for tensor in tensors)}
    assert adapted == {only}
    assert (await StoredCheckpoints(Patience(30)).describe(path)).lora_layers == {name: name == only for name in LAYERS}
