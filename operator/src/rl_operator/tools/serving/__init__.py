"""How tools are reached: MCP, HTTP, a plugin; authorization, and how many calls run at once."""
