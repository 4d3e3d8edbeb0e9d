"""What readers choose from: figures to sort by, and fates. Importing this loads nothing else."""

from typing import Literal

Figure = Literal["reward", "advantage", "length", "gap", "staleness"]
"""`length`: sampled tokens. `gap`: the largest |log p - log q| of a token, p by the trainer and q by the sampler."""

Fate = Literal["trained", "no_advantage", "dropped", "evaluated", "lost"]
"""Of a group; of `lost` ones only the reason is kept."""
