"""What an environment samples: from where, over which connections, and for what purpose."""
