"""What an environment is measured on: held-out sets and their figures."""
