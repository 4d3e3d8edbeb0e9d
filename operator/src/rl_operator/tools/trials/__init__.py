"""Trying an environment with models of a provider, before anything is trained."""
