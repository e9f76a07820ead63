"""Checkpoint formats: one module or package per format, with a table of weight names.

Every format has a function `recognizes(path)` and a function `describe(path, num_heads)`. Writable
formats also have a function `write(model, folder, vocab, tokenizer_options)`.
"""
