"""Optimizers and learning-rate schedules."""

import keras  # noqa: F401  (first, so that the import hook registers all classes in order)
