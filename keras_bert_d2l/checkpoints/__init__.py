"""Weights and disk: a model and its tokenizer to files, and back.

`native` is this package's own format. Here models and text meet for the first time.
"""
