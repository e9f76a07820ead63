"""Checkpoint formats: a module or a package for each, with one table of names each.

Every format has a function `recognizes(path)` and a function `describe(path, num_heads)`. The
formats that can be written have a function `write(model, folder, vocab, tokenizer_options)`.
"""
