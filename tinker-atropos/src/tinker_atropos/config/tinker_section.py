"""The section `tinker`: what the trainer may be told."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tinker_atropos.config.policy_losses import POLICY_LOSSES, ClipThresholds, LossName


class TinkerSection(BaseModel):
    """The trainer's fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lora_rank: int = Field(default=32, gt=0)
    train_attn: bool = Field(default=True, description="whether the adapter is on the attention layers")
    train_mlp: bool = Field(default=True, description="whether it is on the MLP layers")
    train_unembed: bool = Field(default=True, description="whether it is on the unembedding")
    learning_rate: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        default=4e-5, description="Adam's; auto: the cookbook's rule for LoRA, by the model's family and width"
    )
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="after the warm-up: as it is, or to 0 at env.total_steps"
    )
    warmup_steps: int = Field(default=0, ge=0, description="steps of linear growth to the learning rate")
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW's, times the learning rate per step")
    grad_clip_norm: float = Field(default=0.0, ge=0, description="largest global norm of a gradient; 0: any")
    num_substeps: int = Field(default=1, ge=1, description="optimizer steps per batch, each on its share of the groups")
    kl_base_coef: float = Field(default=0.0, ge=0, description="weight of the KL to the base model in advantages")
    advantage: Literal["group_centered", "leave_one_out", "group_normalized"] = "group_centered"
    loss: LossName = "importance_sampling"
    clip_low_threshold: float | None = Field(
        default=None, ge=0, le=1, description="lowest ratio that ppo, cispo and gspo use; null: the loss's own"
    )
    clip_high_threshold: float | None = Field(
        default=None, ge=1, description="highest ratio that ppo, cispo and gspo use; null: the loss's own"
    )
    dro_beta: float = Field(default=0.05, gt=0, description="how much dro pulls the policy back to the sampler")
    trust_region: Literal["none", "dppo", "icepop"] = "none"
    min_ess: float = Field(
        default=0.95, ge=0, le=1, description="effective sample size of stale tokens to steer for; 0: no steering"
    )
    distill_coefficient: float = Field(default=1.0, ge=0, description="weight of what a teacher says, per token")
    truncated_rollouts: Literal["train", "mask", "zero", "clamp"] = "train"
    length_penalty: float = Field(default=0.0, ge=0, description="reward per 1,000 tokens at a pass rate of 1; 0: none")
    max_token_trainer_length: int = Field(default=9000, gt=0, description="longest trained sequence, in tokens")
    max_all_right_replaced: int | None = Field(
        default=4, ge=0, description="all-right groups in a row that environments replace; null: any number"
    )
    dynamic_sampling: bool = Field(default=False, description="replace groups in which every advantage is zero")
    max_staleness: int = Field(default=8, ge=0, description="oldest policy that is trained on, in policy steps")
    missing_logprobs: Literal["recompute", "refuse"] = "recompute"
    kl_warning: float = Field(default=0.05, gt=0, description="warn past this KL of sampler and trainer, fresh tokens")
    max_context_overflows: int = Field(default=100, gt=0, description="too long prompts in a row without a batch")
    save_checkpoint_interval: int = Field(default=25, gt=0, description="steps between state checkpoints")
    keep_checkpoints: int = Field(default=3, ge=1, description="newest state checkpoints that are kept")
    keep_checkpoint_every: int = Field(default=0, ge=0, description="steps whose checkpoints are kept, too; 0: none")
    checkpoint_ttl_days: int = Field(default=30, ge=30, description="after which the backend may delete a checkpoint")
    checkpoint_dir: str = "./temp/"
    seed: int = Field(default=0, ge=0, description="seed of the LoRA initialization")
    eval_metric: str | None = Field(
        default=None, min_length=1, max_length=128, description="the held-out figure; null: the environment's own"
    )
    stop_at: float | None = Field(default=None, description="held-out figure at which the run ends; null: none")
    patience: int = Field(default=0, ge=0, description="evaluations without a new best that end the run; 0: any number")
    eval_deadline_seconds: float = Field(default=600, gt=0, description="longest that training waits for an evaluation")
    backend_deadline_seconds: float = Field(default=300, gt=0, description="longest wait for one backend call")
    wandb_project: str | None = None
    wandb_group: str | None = None
    wandb_run_name: str | None = None
    keep_rollouts_mb: int = Field(
        default=256, ge=0, le=1_000_000, description="room for files with every rollout, in megabytes; 0: none is kept"
    )
    wandb_samples_interval: int = Field(default=20, ge=0, description="steps between tables of rollouts; 0: none")

    @property
    def lora_layers(self) -> Mapping[str, bool]:
        """Which layers the adapter is on, by Tinker's names."""
        return {"train_attn": self.train_attn, "train_mlp": self.train_mlp, "train_unembed": self.train_unembed}

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
