"""A state folder, and kubelets over it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.unit.rl_operator.local.pod_examples import Node

from rl_operator.local.pods.kubelet import Kubelet
from rl_operator.local.programs.leash import Leash
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(Layout(tmp_path))


@pytest.fixture
async def make_node(process: None, store: StateStore) -> AsyncIterator[Callable[..., Node]]:
    """Makes kubelets: `make_node(caller={…}, backend=…)`. Their pods are stopped at the end of the test."""
    nodes: list[Node] = []

    async def no_backend(_pod: Any, _know: Any) -> dict[str, str]:
        return {}

    async with aiohttp.ClientSession() as session:
        with Leash() as leash:

            def make(caller: dict[str, str] | None = None, backend: Any = no_backend) -> Node:
                changed = asyncio.Event()
                kubelet = Kubelet(
                    store, caller=caller or {}, backend=backend, leash=leash, session=session, changed=changed.set
                )
                nodes.append(Node(store, kubelet, changed))
                return nodes[-1]

            yield make
            for node in nodes:
                await node.kubelet.close()
