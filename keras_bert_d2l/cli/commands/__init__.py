"""The commands: one module per group, whose functions are the commands."""
