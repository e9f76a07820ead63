"""Commands that ask a model."""
