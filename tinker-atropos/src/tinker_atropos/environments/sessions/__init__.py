"""A session per rollout: an endpoint and a key that only this rollout has, and a record of all that it sampled."""
