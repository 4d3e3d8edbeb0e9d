"""The cluster back end: the only part that speaks to the API server."""
