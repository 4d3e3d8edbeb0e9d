"""What is known about the config file's fields, as tables: the trainer's, the shared ones and the wired ones."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from rl_operator.api.catalog import EnvironmentField

Section = Literal["env", "openai", "tinker"]

AUTO: Final = "auto"
"""As the value of a field of numbers: the trainer finds the number once it knows the model. No range holds for it."""

SHARED_FIELDS: Final = ("total_steps", "group_size", "batch_size", "max_token_length", "tokenizer_name")
"""Fields of `env` that trainer, api and environment must agree on: always rendered, so that no default can differ."""

SHARED_NUMBERS: Final = ("total_steps", "group_size", "batch_size", "max_token_length")

LORA_LAYERS: Final = ("train_attn", "train_mlp", "train_unembed")
"""Fields of `tinker`, of which one at least must be true."""

ROLLOUT_SECONDS: Final = "rollout_seconds"
"""The field of `env` with the longest time of a rollout, of environments whose rollouts have one."""


def _field(name: str, type_: str, default: Any, description: str, **bounds: Any) -> EnvironmentField:
    return EnvironmentField(name=name, type=type_, default=default, description=description, **bounds)


TINKER_FIELDS: Final = {
    field.name: field
    for field in (
        _field("lora_rank", "int", 32, "rank of the LoRA adapter"),
        _field("train_attn", "bool", True, "adapt the attention layers"),
        _field("train_mlp", "bool", True, "adapt the MLP layers"),
        _field("train_unembed", "bool", True, "adapt the unembedding"),
        _field(
            "learning_rate",
            "float | Literal['auto']",
            4e-5,
            "Adam's learning rate; auto: tinker-cookbook's rule for LoRA, for Llama and Qwen models",
        ),
        _field(
            "learning_rate_schedule",
            "Literal['constant', 'linear', 'cosine']",
            "constant",
            "the learning rate after the warm-up: as it is, or falling to 0 at the last step",
        ),
        _field("warmup_steps", "int", 0, "first steps, in which the learning rate grows to its value"),
        _field("weight_decay", "float", 0.0, "AdamW's weight decay"),
        _field("grad_clip_norm", "float", 0.0, "largest norm of a gradient, longer ones are scaled down; 0: no limit"),
        _field("num_substeps", "int", 1, "optimizer steps per batch, each on its share of the groups"),
        _field("kl_base_coef", "float", 0.0, "weight of the distance from the base model in advantages"),
        _field(
            "advantage",
            "Literal['group_centered', 'leave_one_out', 'group_normalized']",
            "group_centered",
            "baseline of a rollout's score: the group's mean, the mean of the others, or the mean and the deviation",
        ),
        _field(
            "loss",
            "Literal['importance_sampling', 'ppo', 'cispo', 'gspo', 'dro']",
            "importance_sampling",
            "policy loss",
        ),
        _field("clip_low_threshold", "float | None", None, "lowest ratio; null: ppo 0.8, cispo 0, gspo 0.9997"),
        _field("clip_high_threshold", "float | None", None, "highest ratio; null: ppo 1.2, cispo 4, gspo 1.0004"),
        _field("dro_beta", "float", 0.05, "how much the loss dro pulls the policy back to the one that sampled"),
        _field(
            "trust_region",
            "Literal['none', 'dppo', 'icepop']",
            "none",
            "which stale tokens are not trained because their probability moved too far",
        ),
        _field("min_ess", "float", 0.95, "effective sample size of stale tokens that training steers for; 0: none"),
        _field("distill_coefficient", "float", 1.0, "weight of what a teacher says, per token"),
        _field(
            "truncated_rollouts",
            "Literal['train', 'mask', 'zero', 'clamp']",
            "train",
            "rollouts cut off by length: trained as they are, not trained, of reward 0, or of at most reward 0",
        ),
        _field("length_penalty", "float", 0.0, "reward taken per 1,000 tokens, times the group's pass rate; 0: none"),
        _field("max_token_trainer_length", "int", 9000, "longest trained sequence, in tokens"),
        _field(
            "max_all_right_replaced",
            "int | None",
            4,
            "groups in a row that are all right and are replaced by others, before one is sent; null: any number",
        ),
        _field("dynamic_sampling", "bool", False, "whether groups in which every advantage is zero are replaced"),
        _field("max_staleness", "int", 8, "oldest policy whose rollouts are trained, in policy steps"),
        _field(
            "missing_logprobs",
            "Literal['recompute', 'refuse']",
            "recompute",
            "what to do with tokens whose sampling logprobs are unknown: a forward pass, or leave the group out",
        ),
        _field("kl_warning", "float", 0.05, "KL of sampler and trainer over fresh tokens past which status warns"),
        _field("max_context_overflows", "int", 100, "too long prompts in a row, without a batch, that end the run"),
        _field("save_checkpoint_interval", "int", 25, "steps between state checkpoints"),
        _field("keep_checkpoints", "int", 3, "newest state checkpoints that are kept"),
        _field("keep_checkpoint_every", "int", 0, "steps whose checkpoints are kept besides; 0: none"),
        _field("checkpoint_ttl_days", "int", 30, "days after which the backend may delete a checkpoint"),
        _field("keep_rollouts_mb", "int", 256, "megabytes for files with every rollout, as rlctl shows them; 0: none"),
        _field("wandb_samples_interval", "int", 20, "steps between tables of sample rollouts in W&B; 0: none"),
        _field("seed", "int", 0, "seed of the LoRA initialization"),
        _field(
            "eval_metric",
            "str | None",
            None,
            "metric of the environment that is the held-out figure; null: the one that it names itself",
            min_length=1,
            max_length=128,
        ),
        _field("stop_at", "float | None", None, "held-out figure at which the run ends, as a success; null: none"),
        _field("patience", "int", 0, "evaluations in a row without a new best after which it ends; 0: any number"),
        _field("eval_deadline_seconds", "float", 600, "longest that training waits for an evaluation"),
        _field("backend_deadline_seconds", "float", 300, "longest wait for one backend call"),
    )
}
"""The trainer's fields that a run may name. Mirrors `TinkerSection` of tinker_atropos; a test compares the two."""


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest value that ever makes sense, whatever a runtime's bounds are."""

    value: int
    exclusive: bool = False


SMALLEST: Final[dict[tuple[Section, str], Smallest]] = {
    ("env", "total_steps"): Smallest(1),
    ("env", "group_size"): Smallest(1),
    ("env", "batch_size"): Smallest(1),
    ("env", "max_token_length"): Smallest(1),
    ("env", "max_batches_offpolicy"): Smallest(1),  # 0 would never let a batch form
    ("env", "steps_per_eval"): Smallest(0),  # no evaluation at all
    ("tinker", "lora_rank"): Smallest(1),
    ("tinker", "learning_rate"): Smallest(0, exclusive=True),
    ("tinker", "warmup_steps"): Smallest(0),
    ("tinker", "weight_decay"): Smallest(0),
    ("tinker", "grad_clip_norm"): Smallest(0),
    ("tinker", "num_substeps"): Smallest(1),
    ("tinker", "kl_base_coef"): Smallest(0),
    ("tinker", "max_token_trainer_length"): Smallest(1),
    ("tinker", "clip_low_threshold"): Smallest(0),
    ("tinker", "clip_high_threshold"): Smallest(1),
    ("tinker", "dro_beta"): Smallest(0, exclusive=True),
    ("tinker", "min_ess"): Smallest(0),
    ("tinker", "distill_coefficient"): Smallest(0),
    ("tinker", "length_penalty"): Smallest(0),
    ("tinker", "max_all_right_replaced"): Smallest(0),
    ("tinker", "max_staleness"): Smallest(0),
    ("tinker", "kl_warning"): Smallest(0, exclusive=True),
    ("tinker", "max_context_overflows"): Smallest(1),
    ("tinker", "save_checkpoint_interval"): Smallest(1),
    ("tinker", "keep_checkpoints"): Smallest(1),
    ("tinker", "keep_checkpoint_every"): Smallest(0),
    ("tinker", "checkpoint_ttl_days"): Smallest(30),
    ("tinker", "keep_rollouts_mb"): Smallest(0),
    ("tinker", "wandb_samples_interval"): Smallest(0),
    ("tinker", "seed"): Smallest(0),
    ("tinker", "stop_at"): Smallest(-1_000_000),  # some environments' figure is a mean reward
    ("tinker", "patience"): Smallest(0),
    ("tinker", "eval_deadline_seconds"): Smallest(0, exclusive=True),
    ("tinker", "backend_deadline_seconds"): Smallest(0, exclusive=True),
}


_NEVER: Final = 2**31 - 1
"""As an interval it means never, and is written so by people."""
_LONGEST: Final = 10_000_000
"""Tokens: more than any model reads at once."""

LARGEST: Final[dict[tuple[Section, str], int]] = {
    ("env", "total_steps"): 10_000_000,
    ("env", "group_size"): 65_536,
    ("env", "batch_size"): 1_000_000,
    ("env", "max_token_length"): _LONGEST,
    ("env", "max_batches_offpolicy"): 10_000,
    ("env", "steps_per_eval"): _NEVER,
    ("tinker", "lora_rank"): 4_096,
    ("tinker", "learning_rate"): 1,
    ("tinker", "warmup_steps"): 10_000_000,
    ("tinker", "weight_decay"): 1_000,
    ("tinker", "grad_clip_norm"): 1_000_000_000,
    ("tinker", "num_substeps"): 1_000_000,
    ("tinker", "kl_base_coef"): 1_000,
    ("tinker", "max_token_trainer_length"): _LONGEST,
    ("tinker", "clip_low_threshold"): 1,
    ("tinker", "clip_high_threshold"): 1_000,
    ("tinker", "dro_beta"): 1_000,
    ("tinker", "min_ess"): 1,
    ("tinker", "distill_coefficient"): 1_000,
    ("tinker", "length_penalty"): 1_000,
    ("tinker", "max_all_right_replaced"): 1_000_000,
    ("tinker", "max_staleness"): 1_000_000,
    ("tinker", "kl_warning"): 1_000,
    ("tinker", "max_context_overflows"): 1_000_000_000,
    ("tinker", "save_checkpoint_interval"): _NEVER,
    ("tinker", "keep_checkpoints"): 1_000_000,
    ("tinker", "keep_checkpoint_every"): _NEVER,
    ("tinker", "checkpoint_ttl_days"): 36_500,
    ("tinker", "keep_rollouts_mb"): 1_000_000,
    ("tinker", "wandb_samples_interval"): _NEVER,
    ("tinker", "seed"): 2**53 - 1,
    ("tinker", "stop_at"): 1_000_000,
    ("tinker", "patience"): 1_000_000,
    ("tinker", "eval_deadline_seconds"): 604_800,
    ("tinker", "backend_deadline_seconds"): 604_800,
}
"""The largest value that any run could mean: past it a number is a slip of the hand, or more than a library carries.
What a model or backend can do is less, and said by the runtime's bounds or by the backend.
"""


@dataclass(frozen=True, slots=True)
class WiredField:
    """A value that the renderer sets. `instead` says how to get the desired effect."""

    section: Section
    name: str
    instead: str


_ADDRESS = "addresses are chosen by the platform and travel as environment variables: leave the field out"
_KEY = "keys come from the Secrets that the runtime names: leave the field out, and never write a key into a run"
_WANDB = "set spec.wandb.{} instead"
_FILES = "checkpoints are kept by the backend, and folders are chosen by the platform: leave the field out"

WIRED_FIELDS: Final = {
    (field.section, field.name): field
    for field in (
        WiredField("env", "rollout_server_url", _ADDRESS),
        WiredField("env", "base_url", _ADDRESS),
        WiredField("env", "api_key", _KEY),
        WiredField("openai", "base_url", _ADDRESS),
        WiredField("openai", "api_key", _KEY),
        WiredField("tinker", "base_url", _ADDRESS),
        WiredField("tinker", "api_key", _KEY),
        WiredField("tinker", "checkpoint_dir", _FILES),
        WiredField("tinker", "wandb_project", _WANDB.format("project")),
        WiredField("tinker", "wandb_group", _WANDB.format("group")),
        WiredField("tinker", "wandb_run_name", _WANDB.format("name")),
    )
}
