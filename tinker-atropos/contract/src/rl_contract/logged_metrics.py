"""Every metric that a run logs: its unit, what it means, and who reports it. docs/reference/metrics.md has it.

A metric that is missing here fails a test. `*` matches any text, such as an environment's name or a reason.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Source = Literal["trainer", "runner", "environment"]


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` is exact, or a pattern with `*`."""

    name: str
    unit: str
    meaning: str
    source: Source = "trainer"


def describe(name: str) -> Metric | None:
    """The first row that matches a metric's name."""
    return next((metric for metric in METRICS if fnmatchcase(name, metric.name)), None)


_SAMPLER = "over the trained tokens' logprobs, of the distribution sampled from"
_TRAINER = "the same of the trainer's forward pass over the same tokens, before the step"
_STALE = "the same over tokens sampled by older weights: expected to grow with staleness"

METRICS: tuple[Metric, ...] = (
    Metric("train/step", "steps", "optimizer steps trained so far: the x axis of everything"),
    Metric("train/loss", "per token", "the loss's SUM over all trained tokens, divided by their number; with the "
           "cross-entropy to a teacher's top-k, times trainer.distill_coefficient"),
    Metric("train/learning_rate", "1", "Adam's learning rate in this step, by trainer.learning_rate and its schedule"),
    Metric("train/grad_norm", "1", "the norm of the gradient of a SUM over tokens, before clipping, mean over the "
           "step's optimizer steps; only of backends that report it"),
    Metric("train/grad_norm_per_token", "1", "the same of the mean over the trained tokens, as TRL has it"),
    Metric("kl/base", "nats", "KL(policy || base model) per trained token as it was sampled, estimator k3: mean of "
           "exp(-d) - 1 + d, d = log q - log p_base; before evaluations, with trainer.kl_penalty_coef at every step"),
    Metric("kl/base_v1", "nats", "the same by estimator k1: mean of d; unbiased, may be negative"),
    Metric("reward/mean", "reward", "the batch reward: mean over the batch's rollouts, so over the groups that the "
           "environment sent, mostly mixed ones; the rollout reward, env/reward_mean, is the unconditioned mean"),
    Metric("reward/std", "reward", "standard deviation over the batch's rollouts"),
    Metric("reward/min", "reward", "lowest score in the batch"),
    Metric("reward/max", "reward", "highest score in the batch"),
    Metric("reward/component/*", "reward", "mean of the reward's component of that name, over the batch's rollouts "
           "that have it; at most 16 names"),
    Metric("length/mean", "tokens", "generated for a rollout of the batch, in all of its turns, mean"),
    Metric("length/p95", "tokens", "the same, 95th percentile"),
    Metric("length/right", "tokens", "mean over rollouts with a score of at least 1"),
    Metric("length/wrong", "tokens", "mean over the others"),
    Metric("train/entropy", "nats", "of the policy that sampled: -mean log q over the batch's tokens drawn from q "
           "itself, at temperature 1 without top_p and top_k; near 0 it explores nothing"),
    Metric("batch/clipped_fraction", "fraction", "of trained tokens: ppo and gspo, without a gradient because of the "
           "clip; cispo, with a ratio outside of the thresholds"),
    Metric("groups/all_right", "fraction", "of the last 100 groups that an environment made, sent or not, mean over "
           "environments: every rollout is right, by a score of at least 1 or as the environment says"),
    Metric("groups/all_wrong", "fraction", "of the same: no rollout is right"),
    Metric("groups/mixed", "fraction", "of the same: the others, which teach most"),
    Metric("advantages/mean", "reward", "mean over trained sequences of the mean advantage of their trained tokens"),
    Metric("advantages/std", "reward", "standard deviation of the same"),
    Metric("advantages/sum", "reward", "sum of the same"),
    Metric("distil/tokens", "tokens", "trained tokens about which the teacher gave a logprob, or its top-k"),
    Metric("distil/token_fraction", "fraction", "the same, of all trained tokens"),
    Metric("distil/forward_kl", "nats", "KL(teacher || policy) per taught token, of a teacher's top-k: mean of the "
           "sum of w (log w - log p), w its probabilities divided by their sum, p the trainer's before the step"),
    Metric("distil/other_token", "tokens", "trained tokens at which the teacher spoke of another token: no term there"),
    Metric("distil/advantage_mean", "nats", "mean of distill_coefficient * (log p_teacher - log p_sampler): minus the "
           "reverse KL to the teacher, times the coefficient"),
    Metric("distil/advantage_std", "nats", "standard deviation of the same"),
    Metric("logprobs/mean", "nats", f"mean {_SAMPLER}"),
    Metric("logprobs/std", "nats", f"standard deviation {_SAMPLER}"),
    Metric("logprobs/min", "nats", f"minimum {_SAMPLER}"),
    Metric("logprobs/p50", "nats", f"median {_SAMPLER}"),
    Metric("logprobs/mean_training", "nats", _TRAINER),
    Metric("logprobs/std_training", "nats", _TRAINER),
    Metric("logprobs/min_training", "nats", _TRAINER),
    Metric("logprobs/p50_training", "nats", _TRAINER),
    Metric("logprobs/diff", "nats", "mean of sampler's minus trainer's logprob, staleness-0 tokens (upstream's name)"),
    Metric("logprobs/gap", "nats", "largest absolute difference of the two, staleness-0 tokens"),
    Metric("logprobs/kl_v1", "nats", "KL(sampler || trainer) per token, staleness 0, estimator k1: mean of d = log q - "
           "log p; unbiased, may be negative"),
    Metric("logprobs/kl_v2", "nats", "the same by estimator k2: mean of d^2 / 2; past trainer.kl_warning a warning"),
    Metric("logprobs/ess", "fraction", "effective sample size of the weights w = p/q, (sum w)^2 / (n sum w^2), "
           "staleness-0 tokens: 1 when sampler and trainer agree"),
    Metric("logprobs/diff_stale", "nats", _STALE),
    Metric("logprobs/gap_stale", "nats", _STALE),
    Metric("logprobs/kl_v1_stale", "nats", _STALE),
    Metric("logprobs/kl_v2_stale", "nats", _STALE),
    Metric("logprobs/ess_stale", "fraction", "the same over tokens sampled by older weights: falls with staleness"),
    Metric("staleness/mean", "steps", "policy steps between a trained token's weights and those being trained, mean"),
    Metric("staleness/max", "steps", "the same of the oldest trained token, at most trainer.max_staleness"),
    Metric("staleness/allowed", "steps", "how old environments may let rollouts become, by trainer.min_ess"),
    Metric("staleness/unknown", "fraction", "trained tokens of which the ledger does not know the weights"),
    Metric("batch/groups", "groups", "groups in the batch"),
    Metric("batch/rollouts", "rollouts", "rollouts in the batch: env.batch_size"),
    Metric("batch/trained_rollouts", "rollouts", "of these, trained on"),
    Metric("batch/trained_sequences", "sequences", "sequences trained on; a rollout may have several"),
    Metric("batch/no_advantage", "rollouts", "not trained: every advantage in their group is zero"),
    Metric("batch/truncated", "fraction", "of the batch's rollouts, trained or not, whose last generation ended by "
           "length"),
    Metric("batch/truncated_masked", "rollouts", "not trained: truncated, and trainer.truncated_rollouts is mask"),
    Metric("batch/nothing_generated", "sequences", "not trained: nothing in them was generated"),
    Metric("batch/dropped_stale", "rollouts", "dropped for this batch: older than trainer.max_staleness"),
    Metric("batch/dropped_no_logprobs", "rollouts", "dropped for this batch: logprobs unknown and not recomputed"),
    Metric("batch/dropped_untrainable_sampling", "rollouts", "dropped for this batch: sampled with temperature, top_p "
           "or top_k, and the backend's logprobs are not of that distribution"),
    Metric("batch/dropped_too_long", "rollouts", "dropped for this batch: above trainer.max_token_trainer_length"),
    Metric("batch/dropped_no_gradient", "rollouts", "replaced for this batch: every advantage in their group is zero, "
           "and trainer.dynamic_sampling is on"),
    Metric("batch/received_tokens", "tokens", "generated tokens that came for this batch, dropped ones included"),
    Metric("batch/trained_tokens", "tokens", "of these, trained on"),
    Metric("batch/trained_fraction", "fraction", "trained / received tokens"),
    Metric("batch/recomputed_logprobs", "sequences", "whose logprobs came from a forward pass of the current "
           "policy: r is 1, and their staleness is unknown; past a tenth of the batch a warning"),
    Metric("batch/unknown_overrides", "keys", "keys of overrides that nothing here knows: they change nothing"),
    Metric("tokens/sampled", "tokens", "sampled for training since the process began"),
    Metric("items/seen", "items", "dealt to environments so far in all attempts, each epoch's counted; like the next "
           "ones at most some seconds old: seen = trained + dropped + under_way"),
    Metric("items/trained", "items", "of these, their group was trained"),
    Metric("items/dropped", "items", "of these, they are not trained"),
    Metric("items/dropped/*", "items", "of these, for the reason of that name"),
    Metric("items/under_way", "items", "of the items seen, in rollouts, in groups that wait, or waiting to be dealt "
           "again"),
    Metric("items/again", "items", "how often an item was dealt again, because its process or its step was lost"),
    Metric("items/epoch", "epochs", "items seen by the number of items: 1.35 is within the second epoch; only of "
           "environments that say how many there are"),
    Metric("tokens/trained", "tokens", "of these, trained on"),
    Metric("tokens/trained_fraction", "fraction", "trained / sampled: what was filtered, dropped or cancelled is not, "
           "and what waits in the queue is not yet"),
    Metric("tokens/sampled_per_second", "tokens/s", "sampled for training in the time of the step"),
    Metric("tokens/trained_per_second", "tokens/s", "trained on in the time of the step"),
    Metric("tokens/prefilled", "tokens", "of prompts, once per request, and of passes that only score tokens, since "
           "the process began"),
    Metric("cost/total", "currency", "what the run has cost, by spec.backend.prices of its runtime: all attempts, "
           "evaluations included; only with prices"),
    Metric("cost/step", "currency", "since the step before, evaluations included"),
    Metric("tokens/evaluation", "tokens", "sampled for evaluation since the process began: never trained"),
    Metric("tokens/cancelled", "tokens", "at most so many were sampled for clients that went away, since the "
           "process began: the backend does not say how far it came"),
    Metric("inference/requests_cancelled", "requests", "whose clients went away, since the process began"),
    Metric("inference/requests_refused", "requests", "refused as wrong, since the process began"),
    Metric("inference/context_overflows", "requests", "of these, with a prompt that fills the model's context"),
    Metric("backend/rebuilds", "times", "training was opened again from a checkpoint within this attempt"),
    Metric("backend/steps_replayed", "steps", "trained again after that, on the same batches"),
    Metric("time/step", "s", "from the metrics of one step to those of the next: the sum of its parts below"),
    Metric("time/own_share", "fraction", "of the step: preparing and reporting, the trainer's own work that nothing "
           "hides; the rest waits for rollouts and the backend"),
    Metric("time/waiting", "s", "for a batch: sampling and scoring are the bottleneck"),
    Metric("time/paused", "s", "of the step: the backend let it wait for room, or the process was frozen; not in the "
           "pace"),
    Metric("time/preparing", "s", "the trainer's own work: groups to datums, metrics"),
    Metric("time/base_logprobs", "s", "the base model's logprobs, where kl/base is measured"),
    Metric("time/forward", "s", "the batch's logprobs before it is trained, for the loss dro"),
    Metric("time/forward_backward", "s", "the backend's gradient"),
    Metric("time/optim_step", "s", "the backend's optimizer step, after the gradient"),
    Metric("time/snapshot", "s", "the backend's new sampler, after that"),
    Metric("time/reporting", "s", "of the step before: status, W&B and the trajectory API"),
    Metric("time/saving", "s", "of the step before: its checkpoint"),
    Metric("env/step", "steps", "trained when the environment reported: its clock", "runner"),
    Metric("env/reward_mean", "reward", "the rollout reward: mean over all rollouts scored since the last report, "
           "filtered or not", "runner"),
    Metric("env/evaluation_seconds", "s", "of an evaluation: sampling and scoring", "runner"),
    Metric("env/groups_kept", "groups", "sent to the trainer, since the process began", "runner"),
    Metric("env/groups_kept_all_right", "groups", "of these, all right and with nothing to learn: sent because "
           "trainer.max_all_right_replaced before them were replaced", "runner"),
    Metric("env/groups_filtered", "groups", "made and not sent, since the process began", "runner"),
    Metric("env/groups_filtered_*", "groups", "of these, by reason: equal scores, too long, wrong size, by the "
           "environment itself", "runner"),
    Metric("env/groups_all_right", "fraction", "of the last 100 groups that were made", "runner"),
    Metric("env/groups_all_wrong", "fraction", "of the same", "runner"),
    Metric("env/groups_mixed", "fraction", "of the same", "runner"),
    Metric("env/groups_kept_ratio", "fraction", "kept among the groups made lately", "runner"),
    Metric("env/groups_refused", "groups", "refused by the trajectory API, since the process began", "runner"),
    Metric("env/groups_failed", "groups", "of which nothing came, since the process began", "runner"),
    Metric("env/groups_failed_*", "groups", "of these, by reason", "runner"),
    Metric("env/groups_filtered_in_row", "groups", "filtered since the last group that was kept", "runner"),
    Metric("env/tokens_filtered", "tokens", "in filtered groups, since the process began", "runner"),
    Metric("env/tokens_failed", "tokens", "in failed groups and rollouts, since the process began", "runner"),
    Metric("env/rollouts_failed", "rollouts", "that came to no score, since the process began; others were made in "
           "their place", "runner"),
    Metric("env/rollouts_failed_*", "rollouts", "of these, by how: raised, timeout, transport", "runner"),
    Metric("env_*/*", "as env/*", "the same of another environment, by its index from 1 on; or what an environment "
           "reports under a name of the trainer's", "runner"),
    Metric("*eval/percent_correct", "fraction", "score on held-out items", "environment"),
    Metric("*eval/percent_correct_low", "fraction", "lower end of its 95 % interval: Wilson, with items as clusters",
           "environment"),
    Metric("*eval/percent_correct_high", "fraction", "upper end of its 95 % interval: Wilson, with items as clusters",
           "environment"),
    Metric("*eval/n", "completions", "sampled for it", "environment"),
    Metric("*eval/pass_at_*_low", "fraction", "lower end of its 95 % interval, over items", "environment"),
    Metric("*eval/pass_at_*_high", "fraction", "upper end of its 95 % interval, over items", "environment"),
    Metric("*eval/pass_at_*", "fraction", "held-out items of which at least one of k answers is right: unbiased, from "
           "the env.eval_samples of each (Chen et al. 2021); k = 1 is percent_correct", "environment"),
    Metric("*eval/greedy_*_low", "fraction", "lower end of its 95 % interval", "environment"),
    Metric("*eval/greedy_*_high", "fraction", "upper end of its 95 % interval", "environment"),
    Metric("*eval/greedy_*", "fraction", "score on held-out items at temperature 0: with env.eval_greedy",
           "environment"),
    Metric("*eval/*/*", "as eval/*", "the same of another held-out set, by its name", "environment"),
    Metric("*train/percent_correct", "fraction", "right answers among the rollouts since the last report",
           "environment"),
    Metric("*train/mean_reward", "reward", "mean over an agent's rollouts since the last report", "environment"),
    Metric("*rewards/*", "reward", "mean of the reward of that name, of rollouts with several", "environment"),
    Metric("*rollouts/turns", "turns", "answers that a rollout's program or agent asked for, mean", "environment"),
    Metric("*rollouts/sequences", "sequences", "trained sequences of a rollout, mean", "environment"),
    Metric("*rollouts/turns_unmatched", "turns", "of a rollout, mean: prompts that have an answer in their history and "
           "still continue nothing", "environment"),
    Metric("*agent/finished", "fraction", "agents that ended by themselves, before a limit", "environment"),
    Metric("*agent/tool_calls", "calls", "of tools in a rollout, mean", "environment"),
    Metric("*agent/tool_errors", "calls", "of these, went wrong", "environment"),
    Metric("*agent/sandbox_wait", "s", "that a rollout waited for a sandbox before it began, mean; only where "
           "sandboxes are pods", "environment"),
)  # fmt: skip
