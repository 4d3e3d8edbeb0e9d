"""Reading what strangers answer: bounded in size, and JSON or nothing."""

from typing import Any

import aiohttp
import orjson


class UnreadableAnswerError(Exception):
    """What came is no JSON, or longer than anything that we asked for."""


async def read_json(response: aiohttp.ClientResponse, most_bytes: int) -> Any:
    """The body as JSON; raises UnreadableAnswerError, and no more than `most_bytes` (and one piece) are ever held."""
    held = bytearray()
    async for piece in response.content.iter_any():
        held += piece
        if len(held) > most_bytes:
            raise UnreadableAnswerError(f"more than {most_bytes} bytes")
    try:
        return orjson.loads(held)
    except orjson.JSONDecodeError as error:
        raise UnreadableAnswerError(f"no JSON: {error}") from error
