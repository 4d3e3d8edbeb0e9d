"""What an environment tells the run: its groups, its state and its metrics."""
