"""Layers: batches of token ids in, logits out. Written in `keras.ops`, for every backend."""
