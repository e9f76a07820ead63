"""Labeled examples of a task -> batches for its model."""
