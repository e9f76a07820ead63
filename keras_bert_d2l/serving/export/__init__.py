"""Model and tokenizer -> a SavedModel that answers strings."""
