"""Metrics of a step, as pure functions of what it had and what came of it. `metric_table` says what each means."""
