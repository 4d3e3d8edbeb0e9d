"""Objects, locks, events and logs, as files below one folder."""
