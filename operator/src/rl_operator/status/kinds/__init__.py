"""The statuses of RLEnvironment and RLRuntime."""
