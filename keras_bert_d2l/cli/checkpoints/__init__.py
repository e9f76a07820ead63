"""Commands on checkpoint files."""
