"""Several runs at once: the grid of a sweep, how runs compare, and the table of an experiment. Pure."""
