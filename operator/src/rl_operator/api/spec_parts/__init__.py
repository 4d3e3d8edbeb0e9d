"""Parts of the kinds' specs."""
