"""The hash by which both sides know texts again: what a run was frozen as, and the files of an own environment."""

import hashlib
import json
from collections.abc import Mapping


def sha256_of_texts(texts: Mapping[str, str]) -> str:
    """64 hex digits of names and contents, independent of their order: one more text, or one less, is another hash."""
    return hashlib.sha256(json.dumps(dict(texts), sort_keys=True, separators=(",", ":")).encode()).hexdigest()
