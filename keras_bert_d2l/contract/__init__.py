"""What a task must define, and the tasks by name; the tasks themselves are in `tasks`."""
