"""Every rollout as it was trained, or why it was not, written to files. docs/reference/rollout-files.md."""
