"""What the operator and the training processes agree on. Values only: no I/O, no clock, no import of either side."""
