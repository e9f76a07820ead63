"""What the models of all tasks share."""
