"""Where an agent's commands run: a folder of its own, limits, and an end that leaves nothing behind."""
