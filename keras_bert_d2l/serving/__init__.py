"""Export of a model and its tokenizer, and servers and clients for what was exported."""
