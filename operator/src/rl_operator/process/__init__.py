"""The operator process: kopf's handlers, and the assembly of all parts."""
