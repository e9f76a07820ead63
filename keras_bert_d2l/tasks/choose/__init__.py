"""The task `choose`: the choice that fits a text best."""
