"""What several commands show: a run that is followed, its summary, an install; and the rollouts of a step."""
