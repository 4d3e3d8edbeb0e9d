"""The settings of the trainer: the section `tinker` of a run's config file. One entry each.

A field's type, default, bounds and description are read from here by the trainer (which validates with this class), by
the operator (checks, the catalog, the admission policies, `rlctl environments`) and by the reference page.
Bounds are what any run could mean: past them a number is a slip of the hand, or more than a library carries. What a
model or a backend can do is less, and said by the runtime's bounds or by the backend.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rl_contract.policy_losses import POLICY_LOSSES, ClipThresholds, LossName
from rl_contract.setting_rows import OnlyWith

AUTO: Final = "auto"
"""As the value of a field of numbers: the trainer finds the number once it knows the model. No range holds for it."""

LORA_LAYERS: Final = ("train_attn", "train_mlp", "train_unembed")
"""Fields of which one at least must be true."""

NEVER: Final = 2**31 - 1
"""As an interval it means never, and is written so by people."""

MOST_TOKENS: Final = 10_000_000
"""More than any model reads at once."""

MOST_STEPS: Final = 10_000_000

_WEEK: Final = 7 * 24 * 3600
_CLIPPING: Final = tuple(name for name, row in POLICY_LOSSES.items() if row.clips)


def _own_clips(side: Literal["low", "high"]) -> str:
    """`ppo 0.8, cispo 0, gspo 0.9997`: the thresholds that the losses have unless others are set."""
    return ", ".join(f"{name} {getattr(row.clips, side):g}" for name, row in POLICY_LOSSES.items() if row.clips)


class EarlyStopping(BaseModel):
    """When a run ends before its last step, as a success."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    stop_at: float | None = Field(
        default=None,
        ge=-1_000_000,  # some environments' figure is a mean reward
        le=1_000_000,
        description="held-out figure at which the run ends, as a success; null: none",
    )
    patience: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="evaluations in a row without a new best after which it ends; 0: any number",
    )


class RolloutSampling(BaseModel):
    """How training rollouts are sampled, where their requests do not say it themselves."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    temperature: float = Field(
        default=1.0,
        gt=0,  # greedy rollouts have no distribution that could be trained
        le=10,
        description="temperature of training rollouts. TRL, verl and prime-rl divide the trainer's logits by it, too; "
        "Tinker's API cannot, and its cookbook does not recommend another one than 1: ratio, ESS, KL and clips "
        "then compare the tempered sampler with the policy at temperature 1",
    )
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="likeliest tokens that have this probability together; 1: all"
    )
    top_k: int = Field(default=-1, ge=-1, le=1_000_000, description="how many of the likeliest tokens; -1 or 0: all")

    @property
    def is_plain(self) -> bool:
        """Whether the policy itself is sampled from."""
        return self.temperature == 1 and self.top_p == 1 and self.top_k <= 0


class TrainerSettings(BaseModel):
    """What the trainer may be told."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lora_rank: int = Field(default=32, ge=1, le=4_096, description="rank of the LoRA adapter")
    train_attn: bool = Field(default=True, description="adapt the attention layers")
    train_mlp: bool = Field(default=True, description="adapt the MLP layers")
    train_unembed: bool = Field(default=True, description="adapt the unembedding")
    learning_rate: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] = Field(
        default=4e-5,
        description="Adam's learning rate; auto: tinker-cookbook's rule for LoRA, for Llama and Qwen models",
    )
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant",
        description="the learning rate after the warm-up: as it is, or falling to 0 at the last step",
    )
    warmup_steps: int = Field(
        default=0, ge=0, le=MOST_STEPS, description="first steps, in which the learning rate grows to its value"
    )
    weight_decay: float = Field(
        default=0.0, ge=0, le=1_000, description="AdamW's weight decay, times the learning rate per step"
    )
    grad_clip_norm: float = Field(
        default=0.0,
        ge=0,
        le=1_000_000_000,
        description="largest norm of a gradient, longer ones are scaled down, by grad_clip_scale; 0: none",
    )
    grad_clip_scale: Literal["sum", "mean"] = Field(
        default="sum",
        description="what grad_clip_norm is of: the loss as it is, a sum over tokens (train/grad_norm, often 50 and "
        "more), or its mean over the trained tokens (train/grad_norm_per_token), as in TRL",
    )
    num_substeps: int = Field(
        default=1, ge=1, le=1_000_000, description="optimizer steps per batch, each on its share of the groups"
    )
    kl_penalty_coef: float = Field(
        default=0.0, ge=0, le=1_000, description="weight of the distance from the base model in advantages"
    )
    advantage: Literal["group_centered", "leave_one_out", "group_normalized"] = Field(
        default="group_centered",
        description="baseline of a rollout's score: the group's mean, that of the others, or mean and deviation",
    )
    loss: LossName = Field(default="importance_sampling", description="policy loss")
    clip_low_threshold: Annotated[float | None, OnlyWith(losses=_CLIPPING)] = Field(
        default=None, ge=0, le=1, description=f"lowest ratio; null: {_own_clips('low')}"
    )
    clip_high_threshold: Annotated[float | None, OnlyWith(losses=_CLIPPING)] = Field(
        default=None, ge=1, le=1_000, description=f"highest ratio; null: {_own_clips('high')}"
    )
    dro_beta: Annotated[float, OnlyWith(losses=("dro",))] = Field(
        default=0.05, gt=0, le=1_000, description="how much the loss dro pulls the policy back to the one that sampled"
    )
    min_ess: float = Field(
        default=0.95, ge=0, le=1, description="effective sample size that their age is to leave stale tokens; 0: none"
    )
    distill_coefficient: float = Field(
        default=1.0, ge=0, le=1_000, description="weight of what a teacher says, per token"
    )
    truncated_rollouts: Literal["train", "mask", "zero", "clamp"] = Field(
        default="train",
        description="rollouts cut off by length: trained as they are, not trained, of reward 0, or of at most reward 0",
    )
    length_penalty: float = Field(
        default=0.0, ge=0, le=1_000, description="reward taken per 1,000 tokens, times the group's pass rate; 0: none"
    )
    max_token_trainer_length: int = Field(
        default=9000, ge=1, le=MOST_TOKENS, description="longest trained sequence, in tokens"
    )
    max_all_right_replaced: int | None = Field(
        default=4,
        ge=0,
        le=1_000_000,
        description="groups in a row that are all right and are replaced, before one is sent; null: any number",
    )
    dynamic_sampling: bool = Field(
        default=False, description="whether groups in which every advantage is zero are replaced"
    )
    max_staleness: int = Field(
        default=8,
        ge=0,
        le=1_000_000,
        description="oldest policy whose rollouts are trained, in policy steps (one a trained batch); it wins over "
        "max_batches_offpolicy, which counts waiting batches",
    )
    missing_logprobs: Literal["recompute", "refuse"] = Field(
        default="recompute",
        description="tokens whose sampling logprobs are unknown: a forward pass, or the group is left out",
    )
    kl_warning: float = Field(
        default=0.05, gt=0, le=1_000, description="KL of sampler and trainer over fresh tokens past which status warns"
    )
    max_context_overflows: int = Field(
        default=100, ge=1, le=1_000_000_000, description="too long prompts in a row, without a batch, that end the run"
    )
    save_checkpoint_interval: int = Field(default=25, ge=1, le=NEVER, description="steps between state checkpoints")
    keep_checkpoints: int = Field(default=3, ge=1, le=1_000_000, description="newest state checkpoints that are kept")
    keep_checkpoint_every: int = Field(
        default=0, ge=0, le=NEVER, description="steps whose checkpoints are kept besides; 0: none"
    )
    checkpoint_ttl_days: int = Field(
        default=30, ge=30, le=36_500, description="days after which the backend may delete a checkpoint"
    )
    checkpoint_dir: str = Field(default="./temp/", description="folder of the trainer's own files")
    keep_rollouts_mb: int = Field(
        default=256,
        ge=0,
        le=1_000_000,
        description="megabytes for files with every rollout, as rlctl shows them; 0: none",
    )
    wandb_project: str | None = Field(default=None, description="W&B's project; null: W&B is not used")
    wandb_group: str | None = Field(default=None, description="W&B's group")
    wandb_run_name: str | None = Field(default=None, description="the run's name in W&B")
    wandb_samples_interval: int = Field(
        default=20, ge=0, le=NEVER, description="steps between tables of sample rollouts in W&B; 0: none"
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=2**53 - 1,
        description="seed of the run: of the LoRA initialization, the order of items, and all samples",
    )
    sampling: RolloutSampling = Field(default_factory=RolloutSampling)
    eval_metric: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="metric of the environment that is the held-out figure; null: the one that it names itself",
    )
    early_stopping: EarlyStopping = Field(default_factory=EarlyStopping)
    eval_deadline_seconds: float = Field(
        default=600, gt=0, le=_WEEK, description="longest that training waits for an evaluation"
    )
    backend_deadline_seconds: float = Field(
        default=300, gt=0, le=_WEEK, description="longest wait for an answer of the backend; `try again` is one"
    )
    backend_pause_seconds: float = Field(
        default=86_400, gt=0, le=_WEEK, description="longest pause that the backend may ask for, or be full, in a row"
    )

    @property
    def lora_layers(self) -> Mapping[str, bool]:
        """Which layers the adapter is on, by Tinker's names."""
        return {name: getattr(self, name) for name in LORA_LAYERS}

    @property
    def most_all_right_replaced(self) -> int | None:
        """None is any number: with `dynamic_sampling` the trainer would replace the groups that are sent."""
        return None if self.dynamic_sampling else self.max_all_right_replaced

    @property
    def clip_thresholds(self) -> ClipThresholds | None:
        """The given thresholds, else those of the loss; None for a loss that does not clip."""
        own = POLICY_LOSSES[self.loss].clips
        if own is None:
            return None
        low, high = self.clip_low_threshold, self.clip_high_threshold
        return ClipThresholds(own.low if low is None else low, own.high if high is None else high)
