"""Environments that come with the package, a file each, and the tasks that they set."""
