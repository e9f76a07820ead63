"""Checkpoints: saving and loading models with their tokenizers, in several formats.

Start with `loading` and `saving`. `opening` detects the format, `formats` has a module or a package
for each format, and `weights` reads files of arrays and copies them into models. `surgery` changes
the vocabulary or the number of positions of a model.
"""
