"""Environments: one small file each, and the runner that serves them."""
