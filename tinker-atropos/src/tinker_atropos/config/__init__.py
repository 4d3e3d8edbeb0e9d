"""The run's config file: its sections, and how it is read."""
