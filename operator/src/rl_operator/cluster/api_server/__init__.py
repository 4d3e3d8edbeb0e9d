"""Communication with the API server: connections, calls, events, the lease."""
