"""The local target: the same manifests as on a cluster, kept in a folder and run as processes."""
