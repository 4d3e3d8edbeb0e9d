"""The Tinker API: training, sampling, and stored checkpoints."""
