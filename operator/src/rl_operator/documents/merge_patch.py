"""RFC 7396: the smallest merge patch between two JSON objects, and the result of applying one."""

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, Any]:
    """What to send so that `before` becomes `after`: nulls remove, objects are merged, lists are replaced."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if deeper := merge_patch(old, value):
                patch[key] = deeper
        elif key not in before or old != value:
            patch[key] = value
    return patch


def merged(target: Mapping[str, object], patch: Mapping[str, object]) -> dict[str, Any]:
    """What the API server turns an object into. Nulls are removed, also inside an object that is new."""
    result = dict(target)
    for key, value in patch.items():
        if isinstance(value, Mapping):
            old = result.get(key)
            result[key] = merged(old if isinstance(old, Mapping) else {}, value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result
