"""Starting programs, and leaving none of them behind."""
