"""Pages about runs: the report of one, and the comparison of several."""
