"""The tools for agents: one toolset, and the ways to call it (MCP, HTTP, hermes)."""
