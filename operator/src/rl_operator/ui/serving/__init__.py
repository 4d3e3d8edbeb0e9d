"""Where the page is served: to one user of this machine, and in front of a cluster to callers with their tokens."""
