"""The page: runs, curves and rollouts in a browser. `rlctl ui` serves it for this machine's caller."""
