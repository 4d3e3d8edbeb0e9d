"""rlctl in a namespace of a real API server.

Forked from a process that has imported it: what a call does is rlctl's, a second of imports less.
"""

import os
import subprocess
from collections.abc import Callable

from tests import forking
from tests.integration.cluster.control_plane import ADMIN_TOKEN, ControlPlane

Call = Callable[..., subprocess.CompletedProcess[str]]


def rlctl_in(control_plane: ControlPlane, namespace: str, token: str = ADMIN_TOKEN) -> Call:
    """Calls rlctl as the token's user: `call("get", "sorting")`."""
    env_vars = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig(token))}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forking.run([*arguments, "-n", namespace], env_vars, code=forking.RLCTL, timeout=60)

    return call
