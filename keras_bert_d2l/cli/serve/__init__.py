"""Commands that export a model and serve it."""
