"""The page, /ui, in front of a cluster: who sees it, and where."""
