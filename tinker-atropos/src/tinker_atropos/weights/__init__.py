"""Use trained weights: sample from them, export them. Through the tinker SDK, on any backend."""
