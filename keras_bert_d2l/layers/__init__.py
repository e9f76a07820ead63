"""Layers: token ids to logits, written in `keras.ops` for every backend."""

import keras  # noqa: F401  (first, so that the import hook registers all classes in order)
