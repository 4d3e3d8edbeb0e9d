"""What is after `rlctl environments`."""
