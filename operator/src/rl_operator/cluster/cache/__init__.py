"""What the operator knows about the cluster, kept current by watches."""
