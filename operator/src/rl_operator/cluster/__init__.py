"""The cluster target: the only part that speaks to the API server."""
