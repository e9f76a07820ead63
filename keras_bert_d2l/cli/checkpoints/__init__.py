"""Commands for checkpoint files."""
