"""The trajectory API: environments send scored groups, the trainer takes them in batches.

Wire-compatible with atroposlib 0.4.0, with extension routes under `/rl/`. Everything that was acknowledged is in the
journal, so that the process can be killed at any moment and started again on the same folder.
"""
