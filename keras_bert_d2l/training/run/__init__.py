"""What both kinds of runs share: their folder, state, signals and callbacks."""
