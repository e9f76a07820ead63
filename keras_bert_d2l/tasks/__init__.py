"""The tasks: one folder for each; `contract` says what a task must define."""
