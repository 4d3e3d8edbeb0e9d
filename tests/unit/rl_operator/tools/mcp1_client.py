"""What a client of mcp 1.x sees. Run by a Python that has it: mcp1_client.py http URL TOKEN, or stdio COMMAND…"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


def door():
    kind, target, *rest = sys.argv[1:]
    if kind == "stdio":
        return stdio_client(StdioServerParameters(command=target, args=rest))
    return streamablehttp_client(target, headers={"Authorization": f"Bearer {rest[0]}"})


async def talk() -> None:
    async with door() as (read, write, *_), ClientSession(read, write) as session:
        greeting = await session.initialize()
        tools = (await session.list_tools()).tools
        status = await session.call_tool("rl_check_status", {"run_id": "a"})
        refused = await session.call_tool("rl_select_environment", {"name": "chess"})
    seen = {
        "server": greeting.serverInfo.name,
        "instructions": greeting.instructions,
        "tools": {tool.name: tool.annotations.model_dump(exclude_none=True) for tool in tools},
        "status": status.structuredContent,
        "text": status.content[0].text,
        "refused": [refused.isError, refused.structuredContent["available"]],
    }
    print(json.dumps(seen))


asyncio.run(talk())
