"""The task `tag`: labels of words."""
