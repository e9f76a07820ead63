"""Pages that show what a model has learned."""
