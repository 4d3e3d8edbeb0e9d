"""What a run's trainer kept of its rollouts: files, records, and questions to them. Pure."""
