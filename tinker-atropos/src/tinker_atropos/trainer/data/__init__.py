"""Plain values: groups, advantages, datums, progress."""
