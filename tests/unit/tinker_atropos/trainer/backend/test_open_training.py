"""How training is opened from another run's state, against the real Tinker service."""

import os
from dataclasses import replace

import numpy as np
import pytest
from tests.integration.training.faults import Fault, FaultProxy
from tests.unit.tinker_atropos.run_configs import run_config
from tests.unit.tinker_atropos.trainer.backend.conftest import METADATA, settings_of
from tests.unit.tinker_atropos.trainer.backend.made_datums import datum

from rl_contract.bundled import BUNDLED
from tinker_atropos.errors import ConfigError
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.backend.answers import Patience
from tinker_atropos.trainer.backend.backend import TinkerBackend
from tinker_atropos.trainer.backend.checkpoints import BesideWeights, StoredCheckpoints, checkpoint_metadata
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.backend.open_training import Opened, TrainingOpener

PROBE_T = np.array([1, 2, 3])
RANK = 4


pytestmark = pytest.mark.usefixtures("addressed")


def opening(path: str, *, with_optimizer: bool = False, data: bool = False, **changes) -> TrainingOpener:
    settings = Settings(
        run_uid=f"child-{path}", start_from=path, start_from_optimizer=with_optimizer, start_from_data=data
    )
    return TrainingOpener(
        settings, run_config(**{"lora_rank": RANK, **changes}), os.environ["TINKER_BASE_URL"], PROBE_T
    )


async def step(training: Training, token: int):
    return (await training.step([[datum(token)]], 1e-2)).sampler


async def parent(metadata: dict[str, str] = METADATA) -> tuple[str, list[float], list[float]]:
    """A state after two steps, its logprobs, and those after one more step of its own."""
    backend = await TinkerBackend.open(settings_of(lora_rank=RANK), METADATA)
    training = await backend.create(BUNDLED, METADATA)
    await step(training, 5)
    sampler = await step(training, 6)
    path = await training.save_state("two-steps", metadata, ttl_seconds=None)
    saved = await sampler.logprobs(PROBE_T)
    on = await (await step(training, 7)).logprobs(PROBE_T)
    await backend.close("success")
    return path, saved[1:].tolist(), on[1:].tolist()


async def logprobs(opened: Opened) -> list[float]:
    return (await opened.sampler.logprobs(PROBE_T))[1:].tolist()


@pytest.mark.parametrize("with_optimizer", [False, True])
async def test_a_run_starts_at_step_0_with_its_parents_weights(with_optimizer) -> None:
    path, saved, on = await parent()
    opened = await opening(path, with_optimizer=with_optimizer).open()
    assert (opened.step, opened.resumed) == (0, None)
    assert await logprobs(opened) == saved
    stepped = (await (await step(opened.training, 7)).logprobs(PROBE_T))[1:].tolist()
    assert (stepped == on) is with_optimizer, "Adam's moments and its count of steps go into a step"
    assert stepped != saved
    await opened.backend.close("success")


async def test_a_run_goes_on_behind_its_parents_data_only_if_it_is_asked_to() -> None:
    path, _, _ = await parent(checkpoint_metadata("parent", 1, 2, BesideWeights("pools", '{"next":7}')))
    for data in (False, True):
        opened = await opening(path, data=data).open()
        assert (opened.step, opened.resumed) == (0, None)
        found = opened.data_from
        assert (found and (found.path, found.beside[:2])) == ((path, ("pools", '{"next":7}')) if data else None)
        await opened.backend.close("success")


@pytest.mark.parametrize("metadata", [{"made_by": "supervised fine-tuning"}, checkpoint_metadata("parent", 1, 2)])
async def test_data_that_a_checkpoint_does_not_know_are_not_continued(metadata) -> None:
    path, _, _ = await parent(metadata)
    with pytest.raises(ConfigError) as caught:
        await opening(path, data=True).open()
    assert str(caught.value) == (
        f"startFrom.data is continue, and {path} does not say which items it was trained with: allowed are states of "
        "this account that a run of this product saved. Use data: restart"
    )


async def test_weights_of_another_shape_are_refused_with_both_values() -> None:
    path, _, _ = await parent()
    with pytest.raises(ConfigError) as caught:
        await opening(path, model="Qwen/Qwen3-8B", lora_rank=16).open()
    assert str(caught.value) == (
        f"startFrom names weights ({path}) that do not fit: they are of the model 'bundled', and openai.0 names "
        "'Qwen/Qwen3-8B'; they have LoRA rank 4, and trainer.lora_rank is 16. Use the values that they were "
        "trained with"
    )
    assert caught.value.exit_code == 2


async def test_weights_on_other_layers_are_refused() -> None:
    path, _, _ = await parent()
    with pytest.raises(ConfigError) as caught:
        await opening(path, train_unembed=False).open()
    assert str(caught.value) == (
        f"startFrom names weights ({path}) that do not fit: they have train_unembed true, and trainer.train_unembed is "
        "false. Use the values that they were trained with"
    )


async def test_a_coefficient_needs_a_backend_that_samples_from_the_base_model(monkeypatch) -> None:
    """Found out before anything is sampled."""
    path, _, _ = await parent()
    wanting = opening(path, kl_penalty_coef=0.1)
    opened = await wanting.open()
    await opened.backend.close("success")
    async with FaultProxy(os.environ["TINKER_BASE_URL"]).running() as proxy:
        proxy.faults = [Fault("answer", "POST /api/v1/create_sampling_session", times=None, status=422)]
        monkeypatch.setenv("TINKER_BASE_URL", proxy.url)
        with pytest.raises(
            ConfigError, match=r"trainer.kl_penalty_coef is 0.1, and the backend does not sample from the"
        ):
            await replace(wanting, base_url=proxy.url).open()
        opened = await opening(path).open()
        await opened.backend.close("success")


@pytest.mark.parametrize("with_optimizer", [False, True])
async def test_missing_weights_are_refused(with_optimizer) -> None:
    path, _, _ = await parent()
    await StoredCheckpoints(Patience(30)).delete(path)
    with pytest.raises(ConfigError, match=f"startFrom names weights that the backend does not have: .*{path}"):
        await opening(path, with_optimizer=with_optimizer).open()


async def test_an_invalid_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="no/path"):
        await opening("tinker://no/path").open()
