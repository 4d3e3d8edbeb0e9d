"""RFC 7396: the smallest merge patch between two JSON objects."""

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What to send so that `before` becomes `after`: nulls remove, objects go deep, lists are replaced."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if deeper := merge_patch(old, value):
                patch[key] = deeper
        elif key not in before or old != value:
            patch[key] = value
    return patch
