"""Tinker's losses, per token; the loss of a request is their SUM over all tokens of all sequences.

With p the trainer's probability of a target token, q the sampler's, A its advantage and r = p / q:

    cross_entropy        -w log p
    importance_sampling  -r A
    ppo                  -min(r A, clip(r) A)                 (Schulman et al. 2017, arXiv:1707.06347)
    cispo                -stop_gradient(clip(r)) A log p      (MiniMax-M1, arXiv:2506.13585)
    gspo                 -min(s A, clip(s) A)                 (Zheng et al. 2025, arXiv:2507.18071, GSPO-token)
    dro                  -(A log p - beta / 2 (log r)^2)      (Richemond et al. 2024, arXiv:2405.19107)
    stable_reinforce     -stop_gradient(min(r, 1)) A log p + kl_coeff / 2 (log r)^2

s is the geometric mean of r over the tokens that `sequence_ratio_mask` marks, with the gradient of each token's own
log p. Formulas and default thresholds (0.8 and 1.2 for ppo, 0 and 4 for cispo) as in Tinker's documentation of its loss
functions; it names no defaults for gspo (here: the paper's) and dro (here: beta must be given). Any other loss can be
computed with forward_backward_custom. dro's second term is over all positions, as in Tinker's own code: a client has to
give log p itself where nothing is to be trained, and not 0.

`stable_reinforce` is ours. Tinker's is in alpha, and what is public of it (its documentation, the SDK 0.38, and
tinker-cookbook 0.6.1, where it is a default) says how it is called, and not what it computes: it is "a REINFORCE
variant" that stays stable off-policy; it has a setting `kl_coeff`; it takes advantages on sampled tokens only; and it
reads what the service recorded while sampling, by sequence id (`recordings.py`). With these parts we compute REINFORCE
(Williams 1992) with two remedies for stale samples. The importance weight is truncated at 1, as V-trace's is (Espeholt
et al. 2018, arXiv:1802.01561): no stale token counts for more than a fresh one, and one that the policy has left counts
for little. The second term pulls p back to q: its gradient is that of the estimator k2 of their KL divergence (J.
Schulman, http://joschu.net/blog/kl-approx.html). On fresh samples r is 1, and REINFORCE is what remains. q is what was
recorded: a client's `logprobs` are accepted and not read. The default of `kl_coeff`, 0.01, is the SDK's example.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from rl_contract.policy_losses import POLICY_LOSSES, LossName

Inputs = Mapping[str, torch.Tensor]
LossFunction = Callable[[torch.Tensor, Inputs, Mapping[str, float]], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss: its function of (log p, inputs, config), the inputs besides `target_tokens`, and its config's defaults.

    `optional` inputs default to the config's value of that name, else to ones. `recorded` ones are the service's own: a
    datum needs provenance. `required_config` has no default.
    """

    function: LossFunction
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    config: Mapping[str, float] = field(default_factory=dict)
    required_config: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*self.required, *self.optional, *self.recorded)

    @property
    def settings(self) -> tuple[str, ...]:
        """The names that `loss_fn_config` may have."""
        return (*self.config, *self.required_config)


def _cross_entropy(logprobs: torch.Tensor, inputs: Inputs, _config: Mapping[str, float]) -> torch.Tensor:
    return -logprobs * inputs["weights"]


def _importance_sampling(logprobs: torch.Tensor, inputs: Inputs, _config: Mapping[str, float]) -> torch.Tensor:
    return -torch.exp(_log_ratio(logprobs, inputs)) * inputs["advantages"]


def _ppo(logprobs: torch.Tensor, inputs: Inputs, _config: Mapping[str, float]) -> torch.Tensor:
    return _pessimistic(torch.exp(_log_ratio(logprobs, inputs)), inputs)


def _cispo(logprobs: torch.Tensor, inputs: Inputs, _config: Mapping[str, float]) -> torch.Tensor:
    ratio = torch.exp(_log_ratio(logprobs, inputs))
    return -_clip(ratio, inputs).detach() * inputs["advantages"] * logprobs


def _gspo(logprobs_BT: torch.Tensor, inputs: Inputs, _config: Mapping[str, float]) -> torch.Tensor:
    marked_BT = inputs["sequence_ratio_mask"] != 0
    log_ratio_BT = _log_ratio(logprobs_BT.detach(), inputs) * marked_BT
    sequence_B1 = log_ratio_BT.sum(-1, keepdim=True) / marked_BT.sum(-1, keepdim=True).clamp(min=1)
    return _pessimistic(torch.exp(sequence_B1 + logprobs_BT - logprobs_BT.detach()), inputs)


def _dro(logprobs: torch.Tensor, inputs: Inputs, config: Mapping[str, float]) -> torch.Tensor:
    return 0.5 * config["beta"] * _log_ratio(logprobs, inputs) ** 2 - logprobs * inputs["advantages"]


def _stable_reinforce(logprobs: torch.Tensor, inputs: Inputs, config: Mapping[str, float]) -> torch.Tensor:
    log_ratio = _log_ratio(logprobs, inputs)
    weight = torch.exp(log_ratio.detach().clamp(max=0.0))
    pull = 0.5 * config["kl_coeff"] * log_ratio**2 * inputs["sampled"]
    return pull - weight * inputs["advantages"] * logprobs


def _log_ratio(logprobs: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return logprobs - inputs["logprobs"]


def _clip(ratio: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return ratio.clamp(inputs["clip_low_threshold"], inputs["clip_high_threshold"])


def _pessimistic(ratio: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return -torch.minimum(ratio * inputs["advantages"], _clip(ratio, inputs) * inputs["advantages"])


def _clips_of(loss: LossName) -> Mapping[str, float]:
    clips = POLICY_LOSSES[loss].clips
    return clips.as_loss_config() if clips else {}


_POLICY_INPUTS = ("logprobs", "advantages")
_CLIPS = ("clip_low_threshold", "clip_high_threshold")

LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(_cross_entropy, optional=("weights",)),
    "importance_sampling": Loss(_importance_sampling, required=_POLICY_INPUTS),
    "ppo": Loss(_ppo, required=_POLICY_INPUTS, optional=_CLIPS, config=_clips_of("ppo")),
    "cispo": Loss(_cispo, required=_POLICY_INPUTS, optional=_CLIPS, config=_clips_of("cispo")),
    "gspo": Loss(
        _gspo,
        required=(*_POLICY_INPUTS, "sequence_ratio_mask"),
        optional=_CLIPS,
        config=_clips_of("gspo"),
    ),
    "dro": Loss(_dro, required=_POLICY_INPUTS, required_config=("beta",)),
    "stable_reinforce": Loss(
        _stable_reinforce,
        required=("advantages",),
        optional=("logprobs",),  # replaced by the recorded ones
        recorded=("logprobs", "sampled"),
        config={"kl_coeff": 0.01},
    ),
}
MANY_TARGETS = "cross_entropy"  # the one loss with several targets per position
