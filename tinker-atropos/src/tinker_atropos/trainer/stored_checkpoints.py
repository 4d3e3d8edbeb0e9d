"""The checkpoints that the backend keeps, through the SDK's REST client: it needs no session."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import tinker

from tinker_atropos.errors import RunError
from tinker_atropos.trainer.backend_errors import gone_or
from tinker_atropos.trainer.checkpoints import Checkpoint
from tinker_atropos.trainer.sdk_calls import submitted

PAGE = 100

_KINDS: Mapping[str, Literal["state", "sampler"]] = {"training": "state", "sampler": "sampler"}


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """What the weights of a path are: adapters of a model. `lora_rank` is None where the backend does not say it."""

    base_model: str
    lora_rank: int | None


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

    async def describe(self, path: str) -> StoredWeights:
        """What a path holds, anybody's. Raises CheckpointGoneError when the backend does not have it."""
        try:
            found = await submitted(
                f"looking at {path}",
                self._deadline,
                lambda: tinker.RestClient().get_weights_info_by_tinker_path(path),
            )
        except RunError as error:
            raise gone_or(error) from error
        return StoredWeights(found.base_model, found.lora_rank)

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
