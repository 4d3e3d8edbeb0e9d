"""The public API: the kinds as frozen models, the names that outlive a release, and what is generated from them."""
