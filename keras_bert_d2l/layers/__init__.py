"""BERT layers, from token ids to logits, written with `keras.ops` for every backend."""

import keras  # noqa: F401  (first, so that the import hook registers all classes in order)
