"""What is sampled for a rollout: the tokens of its prompts and turns, its score or failure, and the work it is for."""
