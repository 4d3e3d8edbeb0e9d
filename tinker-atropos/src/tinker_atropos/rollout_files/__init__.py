"""The files that rollouts are kept in, and how they are served: docs/reference/rollout-files.md."""
