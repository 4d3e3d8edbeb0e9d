"""Where a run's curves go beside its own status: W&B. Advisory: it never delays or fails a run."""
