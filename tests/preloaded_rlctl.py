"""What the fork server of `rlctl` has imported: its commands, and what a cluster's target needs.

Left out: the official client, and our modules that import it. It reads KUBECONFIG when it is imported.
"""

import gc
import importlib
import pkgutil

from rl_operator.cli import commands

COMMANDS = (found.name for found in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}."))

for name in ("rl_operator.cli.app", "rl_operator.cli.exits", "rl_operator.documents.parse", "aiohttp", *COMMANDS):
    importlib.import_module(name)
gc.collect()
gc.freeze()
