"""Pages of lists, as the SDK's REST client asks for them: `offset` and `limit` in the query."""

from collections.abc import Sequence
from typing import TypeVar

from starlette.requests import Request

from tinker_atropos.tinker_service.request_errors import RequestError

DEFAULT_LIMIT = 100

_Item = TypeVar("_Item")


def page(request: Request, items: Sequence[_Item]) -> tuple[Sequence[_Item], dict[str, int]]:
    offset, limit = (
        _query_integer(request, name, default) for name, default in (("offset", 0), ("limit", DEFAULT_LIMIT))
    )
    return items[offset : offset + limit], {"offset": offset, "limit": limit, "total_count": len(items)}


def _query_integer(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdecimal():
        raise RequestError(f"{name} is {text!r}; it must be a whole number")
    return int(text)
