"""One module per tool, by its name."""
