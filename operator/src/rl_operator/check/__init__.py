"""Run + inputs (runtime, environment, …) -> refusals. Pure; the same for cluster, local mode and `rlctl validate`."""

from rl_operator.check.run_check import MAX_REPORTED, check_run, runtime_invalid, runtime_not_found

__all__ = ["MAX_REPORTED", "check_run", "runtime_invalid", "runtime_not_found"]
