"""tinker-atropos: the training half of rl-operator."""

__version__ = "0.1.0"
