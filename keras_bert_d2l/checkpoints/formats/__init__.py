"""Checkpoint formats: one module or package per format, with a table of weight names.

Every format has a function `recognizes(path)` and a function `describe(path)`. Writable formats
have a function `write(model, folder, vocab, tokenizer_options)`.
"""
