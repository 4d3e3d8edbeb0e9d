"""Where a run's curves go beside its own status: W&B, Trackio. Advisory: none of them delays or fails a run."""
