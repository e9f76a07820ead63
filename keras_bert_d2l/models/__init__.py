"""Models built from the layers, with the losses and metrics to train them."""

import keras  # noqa: F401  (first, so that the import hook registers all classes in order)
