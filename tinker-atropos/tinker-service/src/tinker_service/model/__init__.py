"""The model: LoRA, losses, optimizer steps, sampling, and the files of a checkpoint."""
