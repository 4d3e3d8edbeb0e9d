"""Run + inputs (runtime, environment, …) -> refusals. Pure; the same for cluster, local mode and `rlctl validate`."""
