"""Servers beside the trained policy's, such as a judge's or a teacher's: `env.server.servers[1]` and on.

atroposlib's ServerManager would build all of them in the way of the first, and send the policy's requests to whichever
is free. Ours builds each in its own way, and samples from the first only.
"""

from collections.abc import Iterator
from typing import Any

from atroposlib.envs import base
from atroposlib.envs.server_handling.server_baseline import APIServer
from atroposlib.envs.server_handling.server_manager import ServerManager


class PolicyFirst(list[APIServer]):
    """All servers by index. Iterating, which is how a ServerManager chooses one, gives the trained policy's alone."""

    def __iter__(self) -> Iterator[APIServer]:
        return iter(self[:1])


class PolicyServerManager(ServerManager):  # type: ignore[misc]  # atroposlib has no types
    """`configs` begins with the policy's server."""

    def __init__(self, configs: list[Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(configs[:1], *args, **kwargs)
        others = (ServerManager([config], reasoning_config=self.reasoning_config) for config in configs[1:])
        of_policy: list[Any] = self.servers  # type: ignore[has-type]
        self.servers = PolicyFirst([*of_policy, *(each.servers[0] for each in others)])


def install() -> None:
    """For environments that are built from now on."""
    base.ServerManager = PolicyServerManager
