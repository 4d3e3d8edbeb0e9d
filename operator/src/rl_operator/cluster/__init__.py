"""The cluster target: the only part that calls the API server."""
