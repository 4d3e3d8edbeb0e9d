"""Agents in the environment's process: a loop that calls tools, their sandboxes, and what graders see of them."""
