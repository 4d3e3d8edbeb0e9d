"""What agents call: one toolset, and the doors to it (MCP, HTTP, hermes)."""
