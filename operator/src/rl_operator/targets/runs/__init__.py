"""Questions about one run that every door asks, and the same words for it wherever it is shown."""
