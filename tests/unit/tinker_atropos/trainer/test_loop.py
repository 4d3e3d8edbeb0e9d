"""The loop and its losses on a real Tinker service, through the real SDK."""

from collections.abc import AsyncIterator, Mapping

import numpy as np
import pytest
import tinker

from tinker_atropos.chat.sampling import SamplingSettings
from tinker_atropos.config.tinker_section import TinkerSection
from tinker_atropos.trainer.backend.backend import AdamStep, LossCall, Training
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.data.datums import TrainingBatch, build_batch, loss_config
from tinker_atropos.trainer.inference.ledger import Ledger, LedgerEntry
from tinker_atropos.trainer.loop import train
from tinker_atropos.trainer.reporting.metric_table import describe
from tinker_atropos.trainer.reporting.step_metrics import PARTS
from tinker_atropos.trainer.rollouts.trained_step import TrainedStep
from tinker_atropos.trainer.trajectories.admission import Admission
from tinker_atropos.trainer.trajectories.batch_collector import Collected
from tinker_atropos.trainer.trajectories.deliveries import read_group

PROMPT = [5, 6, 7]


@pytest.fixture
async def training(tinker_service) -> AsyncIterator[Training]:
    client = tinker.ServiceClient(base_url=tinker_service.url, api_key=tinker_service.key)
    yield Training(await client.create_lora_training_client("bundled", rank=4, seed=1), 60)
    await client.close("success")


class Surroundings:
    """Samples a group of four from the current policy for every step; `scores` says how each step's are scored.

    `off` is added to every logprob, as if the backend's sampler and trainer disagreed.
    """

    def __init__(self, policy: CurrentPolicy, scores: list[list[float]], off: float = 0.0) -> None:
        self.policy, self.ledger, self.scores, self.off = policy, Ledger(), scores, off
        self.admission = Admission(self.ledger, policy, TinkerSection())
        self.logged: list[Mapping[str, float]] = []
        self.batches: list[TrainingBatch] = []
        self.entered: list[str] = []
        self.warnings: dict[str, str | None] = {}
        self.saved: list[int] = []

    async def next_batch(self, step: int) -> Collected | None:
        if step == len(self.scores):
            return None
        samples = await self.policy.latest.sampler.sample(
            np.array(PROMPT), 4, SamplingSettings(max_tokens=8, seed=step)
        )
        outputs = [sample.tokens_T.tolist() for sample in samples]
        for output, sample in zip(outputs, samples, strict=True):
            self.ledger.record(np.array(PROMPT), np.array(output), LedgerEntry(sample.logprobs_T + self.off, step))
        group = {
            "tokens": [PROMPT + output for output in outputs],
            "masks": [[-100] * len(PROMPT) + output for output in outputs],
            "scores": self.scores[step],
        }
        admitted = await self.admission.admit(read_group(group), step)
        return Collected((admitted.group,), {}, 0, admitted.recomputed, 0, waited=0.001)

    def enter(self, phase: str) -> None:
        self.entered.append(phase)

    def warn(self, topic: str, sentence: str | None) -> None:
        self.warnings[topic] = sentence

    async def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float], trained: TrainedStep) -> None:
        assert step == len(self.logged) + 1
        assert seconds == metrics["time/step"]
        self.logged.append(metrics)
        assert len(trained.logprobs) == len(trained.batch.datums)
        self.batches.append(trained.batch)

    def saves_at(self, step: int) -> bool:
        return step % 2 == 0

    async def save(self, step: int) -> None:
        self.saved.append(step)


async def test_three_steps_one_of_them_without_advantage(training: Training) -> None:
    policy = CurrentPolicy()
    policy.swap(Policy(0, await training.snapshot()))
    run = Surroundings(policy, [[1.0, 0.0, 0.0, 1.0], [1.0] * 4, [0.0, 1.0, 1.0, 1.0]])
    config = TinkerSection(learning_rate=1e-3)
    samplers = [policy.latest.sampler]

    for step in range(3):
        await train(run, training=training, policy=policy, config=config, steps=range(step, step + 1))
        assert policy.latest.step == step + 1
        samplers.append(policy.latest.sampler)

    assert samplers[1] is not samplers[0]
    assert samplers[2] is samplers[1]  # no gradient: the weights stay, the step counts
    assert samplers[3] is not samplers[2]
    assert [bool(batch.datums) for batch in run.batches] == [True, False, True]
    for metrics in (run.logged[0], run.logged[2]):
        assert metrics["logprobs/gap"] < 1e-5
        assert metrics["logprobs/ess"] == pytest.approx(1, abs=1e-5)
        assert metrics["time/forward_backward"] > 0
    assert run.warnings == {"kl": None, "recomputed": None}


async def test_tokens_that_nobody_knows_have_no_gap_and_a_warning(training: Training) -> None:
    """Their logprobs are the trainer's own, so that every diagnosis of them would look perfect."""
    policy = CurrentPolicy()
    policy.swap(Policy(0, await training.snapshot()))
    run = Surroundings(policy, [[1.0, 0.0, 0.0, 1.0]])
    run.ledger.record = lambda *_: None  # an environment that tokenizes its texts again, with other ids
    await train(run, training=training, policy=policy, config=TinkerSection(), steps=range(1))
    (metrics,) = run.logged
    assert (metrics["batch/recomputed_logprobs"], metrics["staleness/unknown"]) == (4, 1.0)
    assert {name for name in metrics if name.startswith(("logprobs/gap", "logprobs/ess", "logprobs/kl"))} == set()
    assert "staleness/mean" not in metrics
    assert "recomputed by the current policy" in run.warnings["recomputed"]


async def test_a_run_saves_at_its_interval_and_ends_on_request(training: Training) -> None:
    policy = CurrentPolicy()
    policy.swap(Policy(0, await training.snapshot()))
    run = Surroundings(policy, [[1.0, 0.0, 0.0, 1.0]] * 3, off=-0.5)
    config = TinkerSection()
    await train(run, training=training, policy=policy, config=config, steps=range(5))
    assert run.saved == [2]
    assert run.entered == ["sampling", "training", "sampling", "training", "saving", "sampling", "training", "sampling"]
    assert "more than tinker.kl_warning" in run.warnings["kl"]
    assert run.logged[0]["logprobs/kl_v2"] == pytest.approx(0.5**2 / 2, rel=1e-4)
    for metrics in run.logged:
        assert sum(metrics[f"time/{part}"] for part in PARTS) == pytest.approx(metrics["time/step"])
        assert min(metrics[f"time/{part}"] for part in PARTS) >= 0
        assert [name for name in metrics if describe(name) is None] == []


CLIPS = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.05}


def loss_by_hand(loss: str, logprobs: np.ndarray, sampling: np.ndarray, advantages: np.ndarray) -> float:
    """SUM over tokens; zeros in sampling and advantages mark what is not trained."""
    ratio = np.exp(logprobs - sampling)
    clipped = np.clip(ratio, CLIPS["clip_low_threshold"], CLIPS["clip_high_threshold"])
    by_name = {
        "importance_sampling": -ratio * advantages,
        "ppo": -np.minimum(ratio * advantages, clipped * advantages),
        "cispo": -clipped * advantages * logprobs,
    }
    return float(by_name[loss].sum())


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo"])
async def test_a_loss_matches_its_formula(loss: str, training: Training) -> None:
    """Two turns and a single one; the sampler's logprobs differ by up to 0.3, so that ratios are clipped."""
    sampler = await training.snapshot()
    tokens = [[5, 6, 20, 21, 7, 22], [5, 6, 23, 24, 25]]
    masks = [[-100, -100, 20, 21, -100, 22], [-100, -100, 23, 24, 25]]
    off = np.random.default_rng(0)
    logprobs = []
    for row in tokens:
        true_T = await sampler.logprobs(np.array(row))
        logprobs.append(np.minimum(np.nan_to_num(true_T, nan=-1.0) + off.uniform(-0.3, 0.3, len(row)), 0.0).tolist())
    group = {"tokens": tokens, "masks": masks, "scores": [1.0, 0.0], "inference_logprobs": logprobs}
    config = TinkerSection(loss=loss, **CLIPS)
    datums = build_batch([read_group(group)], config).datums

    output = await training.step(datums, LossCall(config.loss, loss_config(config) or {}), AdamStep(1e-6))
    expected = sum(
        loss_by_hand(loss, trainer_T, datum.logprobs_T, datum.advantages_T)
        for trainer_T, datum in zip(output.logprobs, datums, strict=True)
    )
    assert [datum.advantages_T.tolist() for datum in datums] == [[0, 0.5, 0.5, 0, 0.5], [0, -0.5, -0.5, -0.5]]
    assert output.loss_sum == pytest.approx(expected, rel=1e-5)
    assert set(output.seconds) == {"forward_backward", "optim_step", "snapshot"}
    if loss != "importance_sampling":
        unclipped = await training.step(datums, LossCall("importance_sampling"), AdamStep(1e-6))
        assert unclipped.loss_sum != pytest.approx(expected, rel=1e-3)
