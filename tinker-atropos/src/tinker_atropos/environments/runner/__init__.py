"""The runner: hosts one environment, ours or an unmodified atroposlib file.

The environment has the main thread and its event loop to itself. The lease, the relayed metrics and the ops port run
in their own thread (`heartbeat`), because environments are known to block.
"""
