"""pydantic's errors in one line. Its own first line only counts the faults, and its last one advertises a website."""

from pydantic import ValidationError

MAX_FIELDS = 3
"""Fields named of those that pydantic rejects."""


def in_one_line(error: ValidationError) -> str:
    """`Config: rate: Input should be a valid number; …`. Values are left out, because one may be a key."""
    found = [f"{'.'.join(map(str, each['loc'])) or 'as a whole'}: {each['msg']}" for each in error.errors()]
    more = f"; and {len(found) - MAX_FIELDS} more" if len(found) > MAX_FIELDS else ""
    return f"{error.title}: {'; '.join(found[:MAX_FIELDS])}{more}"
