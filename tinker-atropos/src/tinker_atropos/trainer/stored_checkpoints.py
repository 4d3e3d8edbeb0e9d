"""The checkpoints that the backend keeps, through the SDK's REST client: it needs no session."""

import functools
from collections.abc import Mapping
from typing import Literal

import tinker

from tinker_atropos.trainer.checkpoints import Checkpoint
from tinker_atropos.trainer.sdk_calls import submitted

PAGE = 100

_KINDS: Mapping[str, Literal["state", "sampler"]] = {"training": "state", "sampler": "sampler"}


class StoredCheckpoints:
    """Every method raises a RunError; none of them tells anything of the session's health."""

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline = deadline_seconds

    async def list(self) -> list[Checkpoint]:
        """All checkpoints of this key's owner that carry our metadata, of any run, newest first."""
        found: list[Checkpoint] = []
        offset = 0
        while True:
            # RestClient() itself may block: it is made where it is called. Its connections are shared.
            page_of = functools.partial(_page, offset)
            page = await submitted("listing checkpoints", self._deadline, page_of)
            for listed in page.checkpoints:
                kind = _KINDS.get(listed.checkpoint_type)
                marked = kind and Checkpoint.from_metadata(
                    listed.tinker_path, kind, listed.user_metadata or {}, expires_at=listed.expires_at
                )
                if marked:
                    found.append(marked)
            offset += len(page.checkpoints)
            if not page.checkpoints or page.cursor is None or offset >= page.cursor.total_count:
                return found

    async def delete(self, path: str) -> None:
        await submitted(
            f"deleting {path}", self._deadline, lambda: tinker.RestClient().delete_checkpoint_from_tinker_path(path)
        )

    async def keep_for_ever(self, path: str) -> None:
        """Take a checkpoint's expiry away."""
        await submitted(
            f"keeping {path}",
            self._deadline,
            lambda: tinker.RestClient().set_checkpoint_ttl_from_tinker_path(path, None),
        )


def _page(offset: int) -> tinker.APIFuture[tinker.types.CheckpointsListResponse]:
    return tinker.RestClient().list_user_checkpoints(limit=PAGE, offset=offset)
