"""Reading environments from their source with `tinker-atropos`, in a process that may be killed."""

from rl_operator.discovery.discover import discover_files

__all__ = ["discover_files"]
