"""From the trajectory API to batches of groups that may be trained on."""
