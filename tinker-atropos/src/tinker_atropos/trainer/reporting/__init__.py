"""What a run reports: status, metrics, accounting, W&B, sampled text."""
