"""What tools answer, in few words and without secrets."""
