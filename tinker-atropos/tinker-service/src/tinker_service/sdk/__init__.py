"""The routes that the Tinker SDK calls, and their messages."""
