"""What is observed of a run: its pods, its trainer's metrics and history, its W&B run."""
