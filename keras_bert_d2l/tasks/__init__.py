"""The tasks: one folder for each, and in `task.py` what a task must define."""
