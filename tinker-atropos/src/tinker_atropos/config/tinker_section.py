"""The section `tinker`: what the trainer may be told."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tinker_atropos.config.clip_thresholds import CLIP_THRESHOLDS, ClipThresholds


class TinkerSection(BaseModel):
    """The trainer's fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lora_rank: int = Field(default=32, gt=0)
    learning_rate: float = Field(default=4e-5, gt=0)
    advantage: Literal["group_centered", "leave_one_out", "group_normalized"] = "group_centered"
    loss: Literal["importance_sampling", "ppo", "cispo"] = "importance_sampling"
    clip_low_threshold: float | None = Field(
        default=None, ge=0, le=1, description="lowest ratio that ppo and cispo use; null: the loss's own"
    )
    clip_high_threshold: float | None = Field(
        default=None, ge=1, description="highest ratio that ppo and cispo use; null: the loss's own"
    )
    distill_coefficient: float = Field(default=1.0, ge=0, description="weight of the teacher's log-ratio per token")
    max_token_trainer_length: int = Field(default=9000, gt=0, description="longest trained sequence, in tokens")
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
    def clip_thresholds(self) -> ClipThresholds | None:
        """The given thresholds, else those of the loss; None for a loss that does not clip."""
        own = CLIP_THRESHOLDS.get(self.loss)
        if own is None:
            return None
        low, high = self.clip_low_threshold, self.clip_high_threshold
        return ClipThresholds(own.low if low is None else low, own.high if high is None else high)
