"""Changing a draft: from names and values to a checked spec."""
