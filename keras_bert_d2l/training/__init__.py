"""Training: a model and its batches in, weights out."""
