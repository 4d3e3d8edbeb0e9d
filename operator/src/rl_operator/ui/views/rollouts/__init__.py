"""A step: its account of tokens, its groups, and their tokens, as the page shows them. Pure."""
