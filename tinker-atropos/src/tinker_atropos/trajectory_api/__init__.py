"""The trajectory API: environments send scored groups, the trainer fetches them in batches.

Wire-compatible with atroposlib 0.4.0, with extension routes under `/rl/`. Everything that was acknowledged is in the
journal, so the process can be killed at any moment and restarted on the same folder.
"""
