"""Services and NetworkPolicies of a run."""
