"""Metrics of running trainers. Advisory: nothing here fails or slows a run."""
