"""Weights and disk: models and their tokenizers to files, and back, in whoever's format.

`pretrained` is the door. Behind it there is a module for each format, `native` for this package's
own, and `conversion`, the loop that they share. Here models and text meet for the first time.
"""
