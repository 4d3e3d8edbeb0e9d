"""What is done with trained weights: talk to them, take them out. Through the tinker SDK, on any backend."""
