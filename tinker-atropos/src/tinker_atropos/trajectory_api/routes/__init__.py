"""HTTP routes: Atropos' own and ours."""
