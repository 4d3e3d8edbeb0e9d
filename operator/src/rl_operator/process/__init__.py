"""The operator process: kopf's handlers, and the putting together of all parts."""
