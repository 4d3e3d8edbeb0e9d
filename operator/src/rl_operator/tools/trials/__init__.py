"""Trying an environment with a provider's models, before anything is trained."""
