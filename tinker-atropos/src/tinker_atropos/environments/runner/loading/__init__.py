"""From an environment's file and the run's config to an environment that is set up."""
