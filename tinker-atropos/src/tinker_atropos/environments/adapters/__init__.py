"""Environments of other libraries, by name: `reasoning-gym/chain_sum`. A folder for each library.

Each is an environment class like an author's own (`base.py`): what runs it cannot tell the difference. A folder is the
only place that imports its library.
"""
