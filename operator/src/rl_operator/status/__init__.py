"""Status derivation: observed children, metrics, previous status and the time -> status. Pure."""
