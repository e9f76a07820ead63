"""Pretraining data: from a token store to batches of masked sentence pairs.

`pairs` cuts documents into examples, `packing` arranges these in rows, `epochs` assigns rows to
steps, `masking` corrupts the tokens to predict, and `dataset` combines them.
"""
