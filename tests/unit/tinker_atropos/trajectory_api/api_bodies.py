"""What the trajectory API's tests send and wait for: bodies of the protocol, valid unless a test changes them."""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tinker_atropos.trajectory_api.messages.requests import Books, PostedGroups, ReceivedGroup, TrainerRegistration
from tinker_atropos.trajectory_api.store.arrivals import Stored, add_deliveries
from tinker_atropos.trajectory_api.store.journal import Journal

API_COMMAND = (sys.executable, "-c", "from tinker_atropos.cli import main; main()", "api", "--data")


def balanced(books: dict[str, Books]) -> bool:
    """Every received group is accounted for, in groups and in rollouts."""
    return all(
        entries["received"]
        == sum(entries[state] for state in ("buffered", "queued", "delivered", "trained"))
        + sum(entries["dropped"].values())
        for entries in (books["groups"], books["rollouts"])
    )


def delivery(*numbers: int, size: int = 2, content: bytes | None = None, **changes: Any) -> PostedGroups:
    """One POST of groups identified by `number`."""
    return PostedGroups(
        tuple(
            replace(
                ReceivedGroup(
                    env_id=0,
                    rollouts=size,
                    largest_token=9,
                    content=content or json.dumps(number).encode(),
                    gzipped=False,
                    key=str(number),
                ),
                **changes,
            )
            for number in numbers
        )
    )


def post(journal: Journal, *deliveries: PostedGroups, now: float = 0.0, evict: bool = False) -> list[Stored | None]:
    """Store groups below HTTP; the states of each delivery's groups."""
    return journal.write(add_deliveries, deliveries, now=now, max_bytes=journal.max_bytes, evict_replay=evict)


def trainer_registration(**changes: Any) -> dict[str, Any]:
    return {
        "wandb_group": "group",
        "wandb_project": "project",
        "batch_size": 4,
        "max_token_len": 128,
        "checkpoint_dir": "/checkpoints",
        "save_checkpoint_interval": 5,
        "starting_step": 0,
        "num_steps": 10,
    } | changes


def env_registration(**changes: Any) -> dict[str, Any]:
    return {
        "max_token_length": 128,
        "desired_name": "sort",
        "weight": 1.0,
        "group_size": 2,
        "min_batch_allocation": None,
    } | changes


def group(size: int = 2, *, first_token: int = 7, env_id: int | None = 0, **changes: Any) -> dict[str, Any]:
    """A group of `size` sequences; `first_token` identifies the group."""
    return {
        "tokens": [[first_token, 5, 6]] * size,
        "masks": [[-100, 5, 6]] * size,
        "scores": [float(index) for index in range(size)],
        "inference_logprobs": [[1.0, -0.5, -0.25]] * size,
        "env_id": env_id,
    } | changes


def registration(**changes: Any) -> TrainerRegistration:
    return TrainerRegistration(**trainer_registration(**changes))


def eventually(what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if found := condition():
                return found
        time.sleep(0.02)
    pytest.fail(f"not within {seconds} s: {what}")
