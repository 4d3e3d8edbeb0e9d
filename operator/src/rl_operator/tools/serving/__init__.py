"""How tools are reached: MCP, HTTP, a plugin; who may call, and how many calls run at once."""
