"""Export of a model and its tokenizer as a SavedModel that takes strings."""
