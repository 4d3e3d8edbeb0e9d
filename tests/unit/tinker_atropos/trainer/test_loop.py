"""The loop and its losses on a real Tinker service, through the real SDK."""

from collections.abc import AsyncIterator, Mapping

import numpy as np
import pytest
import tinker
from tests.unit.tinker_atropos.run_configs import run_config

from rl_contract.logged_metrics import describe
from rl_contract.policy_losses import POLICY_LOSSES
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import SamplingSettings
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import ConfigError
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy, Sampler
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch, build_batch
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.loop import train
from tinker_atropos.trainer.reporting.step_metrics import PARTS
from tinker_atropos.trainer.rollouts.rollout_lines import TrainedStep
from tinker_atropos.trainer.trajectories.admission import Admission, Admitted
from tinker_atropos.trainer.trajectories.batch_collector import Collected
from tinker_atropos.trainer.trajectories.deliveries import read_group

PROMPT = [5, 6, 7]


def config_of(steps_per_eval: int = 0, batch_size: int = 4, **options) -> RunConfig:
    env = {"total_steps": 8, "group_size": 4, "batch_size": batch_size, "steps_per_eval": steps_per_eval}
    return run_config(env, **options)


@pytest.fixture
async def service_training(tinker_service) -> AsyncIterator[Training]:
    client = tinker.ServiceClient(base_url=tinker_service.url, api_key=tinker_service.key)
    yield Training(await client.create_lora_training_client("bundled", rank=4, seed=1), TrainerSettings())
    await client.close("success")


def with_settings(training: Training, settings: TrainerSettings) -> Training:
    """The same weights, trained by other settings."""
    return Training(training._client, settings)


class Surroundings:
    """Samples groups of four from the current policy for every step; `scores` says how each step's are scored.

    `off` is added to every logprob, as if the backend's sampler and trainer disagreed.
    """

    def __init__(
        self, policy: CurrentPolicy, scores: list[list[float]], off: float = 0.0, groups: int = 1, behind: int = 0
    ) -> None:
        self.policy, self.ledger, self.scores, self.off, self.groups = policy, Ledger(), scores, off, groups
        self.behind = behind
        self.admission = Admission(self.ledger, policy, TrainerSettings())
        self.logged: list[Mapping[str, float]] = []
        self.batches: list[TrainingBatch] = []
        self.entered: list[str] = []
        self.warnings: dict[str, str | None] = {}
        self.saved: list[int] = []

    async def next_batch(self, step: int) -> Collected | None:
        if step == len(self.scores):
            return None
        admitted = [await self.group(step, seed=step + 100 * group) for group in range(self.groups)]
        recomputed = sum(each.recomputed for each in admitted)
        return Collected(tuple(each.group for each in admitted), {}, 0, recomputed, 0, waited=0.001)

    async def group(self, step: int, seed: int) -> Admitted:
        samples = await self.policy.latest.sampler.sample(
            np.array(PROMPT), 4, SamplingSettings(max_tokens=8, seed=seed)
        )
        outputs = [sample.tokens_T.tolist() for sample in samples]
        for output, sample in zip(outputs, samples, strict=True):
            logprobs_T = sample.logprobs_T + self.off
            self.ledger.record(np.array(PROMPT), np.array(output), logprobs_T, step - self.behind)
        group = {
            "tokens": [PROMPT + output for output in outputs],
            "masks": [[-100] * len(PROMPT) + output for output in outputs],
            "scores": self.scores[step],
        }
        return await self.admission.admit(read_group(self.taught(group)), step)

    def taught(self, group: dict) -> dict:
        """With what a teacher says: here there is none."""
        return group

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


async def test_three_steps_one_of_them_without_advantage(service_training: Training) -> None:
    policy = CurrentPolicy()
    policy.swap(Policy(0, await service_training.snapshot()))
    run = Surroundings(policy, [[1.0, 0.0, 0.0, 1.0], [1.0] * 4, [0.0, 1.0, 1.0, 1.0]])
    config = config_of(learning_rate=1e-3)
    samplers = [policy.latest.sampler]

    for step in range(3):
        await train(run, training=service_training, policy=policy, config=config, steps=range(step, step + 1))
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


class OfOneMind(Surroundings):
    """With a teacher that would nearly always sample one token, whatever was sampled."""

    TOKEN, OTHER = 9, 11

    def taught(self, group: dict) -> dict:
        said = {"distill_token_ids": [self.TOKEN, self.OTHER], "distill_logprobs": [-0.125, -2.25]}
        masks = group["masks"]
        return group | {
            name: [[[] if mask == -100 else row for mask in masks_T] for masks_T in masks] for name, row in said.items()
        }


@pytest.mark.parametrize("loss", ["importance_sampling", "dro"])
async def test_a_teacher_is_learned_although_no_reward_tells_rollouts_apart(
    loss: str, service_training: Training
) -> None:
    policy = CurrentPolicy()
    policy.swap(Policy(0, await service_training.snapshot()))
    run = OfOneMind(policy, [[0.0] * 4] * 6, groups=2)
    config = config_of(learning_rate=2e-2, num_substeps=2, batch_size=8, loss=loss)
    training = with_settings(service_training, config.tinker)
    await train(run, training=training, policy=policy, config=config, steps=range(6))
    apart = [metrics["distil/forward_kl"] for metrics in run.logged]
    assert apart[-1] < apart[0] / 4
    for metrics in run.logged:
        assert (metrics["distil/token_fraction"], metrics["reward/std"]) == (1.0, 0.0)
        assert metrics["advantages/std"] == 0.0
        assert [name for name in metrics if describe(name) is None] == []
    sampled = await policy.latest.sampler.sample(np.array(PROMPT), 32, SamplingSettings(max_tokens=4, seed=1))
    tokens = np.concatenate([sample.tokens_T for sample in sampled])
    assert np.mean(tokens == OfOneMind.TOKEN) > 0.5


async def test_tokens_that_nobody_knows_have_no_gap_and_a_warning(service_training: Training) -> None:
    """Their logprobs are the trainer's own, so that every diagnosis of them would look perfect."""
    policy = CurrentPolicy()
    policy.swap(Policy(0, await service_training.snapshot()))
    run = Surroundings(policy, [[1.0, 0.0, 0.0, 1.0]])
    run.ledger.record = lambda *_: None  # an environment that tokenizes its texts again, with other ids
    await train(run, training=service_training, policy=policy, config=config_of(), steps=range(1))
    (metrics,) = run.logged
    assert (metrics["batch/recomputed_logprobs"], metrics["staleness/unknown"]) == (4, 1.0)
    assert {name for name in metrics if name.startswith(("logprobs/gap", "logprobs/ess", "logprobs/kl"))} == set()
    assert "staleness/mean" not in metrics
    assert "recomputed by the current policy" in run.warnings["recomputed"]


async def test_a_run_saves_at_its_interval_and_ends_on_request(service_training: Training) -> None:
    policy = CurrentPolicy()
    policy.swap(Policy(0, await service_training.snapshot()))
    run = Surroundings(policy, [[1.0, 0.0, 0.0, 1.0]] * 3, off=-0.5)
    await train(run, training=service_training, policy=policy, config=config_of(), steps=range(5))
    assert run.saved == [2]
    assert run.entered == ["sampling", "training", "sampling", "training", "saving", "sampling", "training", "sampling"]
    assert "more than trainer.kl_warning" in run.warnings["kl"]
    assert run.logged[0]["logprobs/kl_v2"] == pytest.approx(0.5**2 / 2, rel=1e-4)
    for metrics in run.logged:
        assert sum(metrics[f"time/{part}"] for part in PARTS) == pytest.approx(metrics["time/step"])
        assert min(metrics[f"time/{part}"] for part in PARTS) >= 0
        assert [name for name in metrics if describe(name) is None] == []


SCORES = [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0]]


async def trained_from_the_start(training: Training, config: RunConfig) -> tuple[Surroundings, Sampler]:
    """Four steps, and the sampler of the first weights: a new adapter changes nothing, so that is the base model's."""
    policy = CurrentPolicy()
    policy.swap(Policy(0, await training.snapshot()))
    base = policy.latest.sampler
    run = Surroundings(policy, SCORES)
    await train(run, training=training, policy=policy, config=config, steps=range(4))
    return run, base


async def apart_of(batch: TrainingBatch, base: Sampler) -> list[np.ndarray]:
    """Of each datum's trained tokens: log q - log p_base."""
    rows = [(datum, await base.logprobs(datum.tokens_T)) for datum in batch.datums]
    return [(datum.logprobs_T - row_T[1:])[datum.trained_T] for datum, row_T in rows]


async def test_the_distance_from_the_base_model_is_measured_before_evaluations(service_training: Training) -> None:
    run, base = await trained_from_the_start(service_training, config_of(steps_per_eval=2, learning_rate=1e-2))
    assert ["kl/base" in metrics for metrics in run.logged] == [False, True, False, True]
    assert run.warnings["base"] is None
    for step in (1, 3):
        d_N = np.concatenate(await apart_of(run.batches[step], base))
        metrics = run.logged[step]
        assert metrics["kl/base_v1"] == pytest.approx(d_N.mean(), abs=1e-6)
        assert metrics["kl/base"] == pytest.approx((np.exp(-d_N) - 1 + d_N).mean(), abs=1e-6)
        assert metrics["time/base_logprobs"] > 0
    assert run.logged[3]["kl/base"] > run.logged[1]["kl/base"] > 1e-6


async def test_the_distance_from_the_base_model_is_a_part_of_the_advantages(service_training: Training) -> None:
    config = config_of(learning_rate=1e-2, kl_penalty_coef=0.5)
    run, base = await trained_from_the_start(service_training, config)
    assert all("kl/base" in metrics for metrics in run.logged)
    for batch in run.batches:
        plain = build_batch(batch.groups, config.tinker)
        apart = await apart_of(batch, base)
        mean = np.concatenate(apart).mean()
        for datum, before, d_T in zip(batch.datums, plain.datums, apart, strict=True):
            added_T = datum.advantages_T - before.advantages_T
            np.testing.assert_allclose(added_T[datum.trained_T], 0.5 * (mean - d_T), atol=1e-6)
            assert not added_T[~datum.trained_T].any()
    assert any(np.abs(np.concatenate(await apart_of(run.batches[3], base))) > 1e-3)


async def test_a_backend_without_the_base_model_is_a_warning(service_training: Training) -> None:
    config = config_of(steps_per_eval=2, model="other/model")
    run, _ = await trained_from_the_start(service_training, config)
    assert not any("kl/base" in metrics for metrics in run.logged)
    assert run.warnings["base"].startswith("the distance from the base model (kl/base) is unknown: opening a sampler")
    assert "base model 'other/model' is not served here" in run.warnings["base"]


async def test_several_optimizer_steps_of_a_batch_are_one_policy_step(service_training: Training) -> None:
    """The second one's logprobs are of weights that the first has moved: no disagreement of sampler and trainer."""
    policy = CurrentPolicy()
    policy.swap(Policy(0, await service_training.snapshot()))
    run = Surroundings(policy, SCORES, groups=2)
    config = config_of(learning_rate=1e-2, num_substeps=2, batch_size=8)
    await train(run, training=service_training, policy=policy, config=config, steps=range(2))
    assert policy.latest.step == 2
    for metrics in run.logged:
        assert (metrics["batch/groups"], metrics["batch/trained_sequences"]) == (2, 8)
        assert metrics["logprobs/gap"] < 1e-5
        assert metrics["logprobs/gap_stale"] > 1e-3
    assert run.warnings["kl"] is None


async def test_the_schedule_and_the_gradient_are_metrics(service_training: Training) -> None:
    config = config_of(learning_rate=8e-3, learning_rate_schedule="linear", warmup_steps=2, grad_clip_norm=1e-3)
    run, _ = await trained_from_the_start(with_settings(service_training, config.tinker), config)
    rates = [metrics["train/learning_rate"] for metrics in run.logged]
    assert rates == pytest.approx([4e-3, 8e-3, 8e-3, 8e-3 * 5 / 6])
    assert min(metrics["train/grad_norm"] for metrics in run.logged) > 1e-3, "as it was before clipping"


@pytest.mark.parametrize("loss", POLICY_LOSSES)
async def test_the_service_takes_every_loss_that_a_run_may_choose(loss: str, service_training: Training) -> None:
    await with_settings(service_training, TrainerSettings(loss=loss)).check_loss(np.array([5, 5]))


async def test_a_loss_that_the_backend_refuses_ends_the_run_at_once(service_training: Training) -> None:
    with pytest.raises(ConfigError, match=r"^trainer.loss is 'dro', and the backend refuses it: .*100000"):
        await with_settings(service_training, TrainerSettings(loss="dro")).check_loss(np.array([5, 100_000]))


CLIPS = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.05}


def loss_by_hand(loss: str, logprobs: np.ndarray, datum: Datum) -> float:
    """SUM over tokens; zeros in the advantages mark what is not trained."""
    sampling, advantages = datum.logprobs_T, datum.advantages_T
    ratio = np.exp(logprobs - sampling)
    clipped = np.clip(ratio, CLIPS["clip_low_threshold"], CLIPS["clip_high_threshold"])
    of_sequence = np.exp((logprobs - sampling)[datum.trained_T].mean())
    of_sequence_clipped = np.clip(of_sequence, CLIPS["clip_low_threshold"], CLIPS["clip_high_threshold"])
    by_name = {
        "gspo": -np.minimum(of_sequence * advantages, of_sequence_clipped * advantages),
        "dro": 0.025 * (logprobs - sampling) ** 2 - logprobs * advantages,
        "importance_sampling": -ratio * advantages,
        "ppo": -np.minimum(ratio * advantages, clipped * advantages),
        "cispo": -clipped * advantages * logprobs,
    }
    return float(by_name[loss].sum())


@pytest.mark.parametrize("loss", POLICY_LOSSES)
async def test_a_loss_matches_its_formula(loss: str, service_training: Training) -> None:
    """Two turns and a single one; the sampler's logprobs differ by up to 0.3, so that ratios are clipped."""
    sampler = await service_training.snapshot()
    tokens = [[5, 6, 20, 21, 7, 22], [5, 6, 23, 24, 25]]
    masks = [[-100, -100, 20, 21, -100, 22], [-100, -100, 23, 24, 25]]
    off = np.random.default_rng(0)
    logprobs = []
    for row in tokens:
        true_T = await sampler.logprobs(np.array(row))
        logprobs.append(np.minimum(np.nan_to_num(true_T, nan=-1.0) + off.uniform(-0.3, 0.3, len(row)), 0.0).tolist())
    group = {"tokens": tokens, "masks": masks, "scores": [1.0, 0.0], "inference_logprobs": logprobs}
    config = TrainerSettings(loss=loss, **CLIPS)
    datums = build_batch([read_group(group)], config).datums

    output = await with_settings(service_training, config).step([datums], 1e-6)
    expected = sum(
        loss_by_hand(loss, trainer_T, datum) for trainer_T, datum in zip(output.logprobs, datums, strict=True)
    )
    assert [datum.advantages_T.tolist() for datum in datums] == [[0, 0.5, 0.5, 0, 0.5], [0, -0.5, -0.5, -0.5]]
    assert output.loss_sum == pytest.approx(expected, rel=1e-5)
    assert set(output.seconds) == {"forward_backward", "optim_step", "snapshot"}
    if loss != "importance_sampling":
        unclipped = await service_training.step([datums], 1e-6)
        assert unclipped.loss_sum != pytest.approx(expected, rel=1e-3)
