"""What a run says about itself: status, metrics, accounting, W&B, sampled texts."""
