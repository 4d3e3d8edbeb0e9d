"""What is said of a trainer that works and that the operator does not hear."""

from typing import Final

from rl_operator.status.view import View

OPS_PORT: Final = 8002
"""Of a trainer (contract: Containers)."""


def unheard_sentence(view: View) -> str:
    """Said while it lasts, in the same words: what is shown instead, why that may be, and what to do."""
    pod, progress = view.pod, view.run.status.progress
    step = max(progress.step if progress else 0, (view.wandb.step or 0) if view.wandb else 0)
    training = f"Training: step {step} or later." if step else "Training."
    source = "come from W&B meanwhile" if view.wandb else "come with the result, at the end"
    return (
        f"{training} The operator cannot read the figures of pod {pod.name if pod else '-'} (port {OPS_PORT}), though "
        f"its trainer is ready: strict mTLS, a network policy, or an operator outside the cluster. They {source}; to "
        f"see them sooner, let the operator reach that port."
    )
