"""Groups and batches in SQLite: nothing that was accepted is lost."""
