"""What the routes do: registration, leases, pace, batches."""
