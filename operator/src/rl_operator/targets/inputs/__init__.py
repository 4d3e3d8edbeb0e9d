"""What a run needs before it starts: its environment, its settings, keys and packages."""
