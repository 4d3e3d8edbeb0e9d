"""The runner: lives around one environment, ours or an unmodified atroposlib file.

The environment has the main thread and its event loop to itself. The lease, the relayed metrics and the ops port live
in a thread of their own (`heartbeat`), because environments are known to block.
"""
