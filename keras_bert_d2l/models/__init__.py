"""Models: layers assembled into `keras.Model`s, with the losses and metrics for training them."""

import keras  # noqa: F401  (first, so that the import hook registers all classes in order)
