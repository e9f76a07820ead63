"""Commands that train a model."""
