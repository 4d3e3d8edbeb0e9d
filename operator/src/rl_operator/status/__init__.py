"""Status derivation: from observed children, metrics, the previous status and the time to the new status. Pure."""
