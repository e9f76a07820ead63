"""Strings -> token ids and back, as TensorFlow ops."""
