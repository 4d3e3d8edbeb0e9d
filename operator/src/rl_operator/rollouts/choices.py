"""What readers choose from: figures to sort by, and fates. Importing this loads nothing else."""

from typing import Literal

from rl_contract.rollout_fates import GroupFate

Figure = Literal["reward", "advantage", "length", "gap", "staleness"]
"""`length`: sampled tokens. `gap`: the largest |log p - log q| of a token, p by the trainer and q by the sampler."""

Fate = Literal[GroupFate, "lost"]
"""Of a group; of `lost` ones only the reason is kept."""
