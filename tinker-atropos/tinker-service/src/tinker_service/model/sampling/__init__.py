"""Sampling with continuous batching: requests join and leave one running batch at any token."""
