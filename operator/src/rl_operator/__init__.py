"""rl-operator: an RL training run is a Kubernetes object."""

__version__ = "0.1.0"
