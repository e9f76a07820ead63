"""Pretraining data: from a token store to batches of masked sentence pairs.

`pairs` cuts documents into examples, `packing` puts these into rows, `epochs` decides which rows a
step has, `masking` corrupts the tokens to predict, and `dataset` connects them.
"""
