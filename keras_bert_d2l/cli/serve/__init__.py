"""Commands that export and serve a model."""
