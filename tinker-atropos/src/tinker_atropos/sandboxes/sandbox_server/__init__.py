"""The tool server in a sandbox: runs commands, reads and writes files, and takes everything with it when it ends.

Standard library only, and quick to import: it is started for each rollout, and has to run where nothing is installed.
"""
