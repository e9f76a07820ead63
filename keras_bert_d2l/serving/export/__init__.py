"""Export of a model and its tokenizer as a SavedModel that answers strings."""
